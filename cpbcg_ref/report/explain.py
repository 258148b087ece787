"""One batch on one server, worked out by the reference: rows per rank, required rows, each bucket's verdict."""

from collections.abc import Sequence
from typing import Any, TextIO

import cpbcg_ref
from cpbcg_ref.cases import Server
from cpbcg_ref.report.terminal import Printer


def captured_rows(server: Server, *, align: int | None) -> dict[int, int | None]:
    """Rows that the capture rule gives each bucket; None for one that has no legal split."""
    how: dict[str, Any] = {"cp_size": server.cp_size, "strategy": server.strategy}
    rows: dict[int, int | None] = {}
    for bucket in server.capture_num_tokens:
        split = cpbcg_ref.capture_requests(bucket, context_length=server.context_length, **how)
        rows[bucket] = cpbcg_ref.required_local_tokens(split, alignment=align, **how) if split else None
    return rows


def explain(
    lengths: Sequence[int], *, server: Server, captured: dict[int, int | None], align: int | None = None
) -> dict[str, Any]:
    """The numbers behind one choice. `captured`: rows of each bucket, None if it could not be captured.

    Raises InvalidInput for values that no server can have.
    """
    how: dict[str, Any] = {"cp_size": server.cp_size, "strategy": server.strategy}
    active = cpbcg_ref.is_cp_active(lengths, **how)
    required = cpbcg_ref.required_local_tokens(lengths, alignment=align, **how)
    question: dict[str, Any] = {
        "num_tokens": sum(lengths),
        "required_local_tokens": required if active or server.cp_size == 1 else None,
        "max_padding_factor": server.max_padding_factor,
        "min_replay_bucket": server.min_replay_bucket,
    }
    rows = {bucket: number for bucket, number in captured.items() if number is not None}
    chosen = cpbcg_ref.select_replay_bucket(
        capture_num_tokens=server.capture_num_tokens, bucket_local_tokens=rows, **question
    )
    return {
        "rows_per_rank": list(cpbcg_ref.per_rank_logical_tokens(lengths, **how)),
        "required_local_tokens": required,
        "buckets": [
            {"bucket": bucket, "captured": number, "verdict": verdict(bucket, number, chosen, question)}
            for bucket, number in captured.items()
        ],
        "chosen": chosen,
        "cp_active": active,
        "why": why(lengths, server, active),
    }


def verdict(bucket: int, captured: int | None, chosen: int | None, question: dict[str, Any]) -> str:
    """Why this bucket is or is not the choice; whether it fits is the selector's own answer for it alone."""
    tokens, required, most = (question[k] for k in ("num_tokens", "required_local_tokens", "max_padding_factor"))
    if bucket == chosen:
        return "chosen"
    if captured is None:
        return "refused: not captured, it has no legal split into requests"
    if required is None:
        return "not considered: the batch runs eager"
    alone: dict[str, Any] = {"capture_num_tokens": [bucket], "bucket_local_tokens": {bucket: captured}}
    if cpbcg_ref.select_replay_bucket(**alone, **question) == bucket:
        return f"fits, but {chosen} is smaller"
    refusals = [
        f"{bucket} tokens < {tokens} of the batch" if bucket < tokens else "",
        f"{captured} rows < {required} required" if captured < required else "",
        f"{bucket} tokens > {most:g} x {tokens} of the batch" if bucket > most * tokens else "",
    ]
    return "refused: " + ", ".join(filter(None, refusals))


def why(lengths: Sequence[int], server: Server, active: bool) -> str:
    """What decides whether CP is active for this batch."""
    if server.cp_size == 1:
        return "cp_size is 1, so every token is a row of the one rank"
    if not lengths:
        return "the batch is empty"
    zigzag = server.strategy == "zigzag"
    what, has = ("shortest request", min(lengths)) if zigzag else ("batch", sum(lengths))
    needs = f"{2 * server.cp_size} (2 x cp_size)" if zigzag else f"{server.cp_size} (cp_size)"
    return f"the {what} has {has} tokens, {'at least' if active else 'fewer than'} {needs}"


def show_explain(found: dict[str, Any], file: TextIO) -> None:
    printer = Printer(file)
    printer.wrapped(f"CP is {'active' if found['cp_active'] else 'not active'}: {found['why']}")
    printer.say()
    ranks = [(str(rank), str(rows)) for rank, rows in enumerate(found["rows_per_rank"])]
    printer.table(("rank", "rows"), ranks, numbers=("rank", "rows"))
    printer.say(f"\nrequired rows, the same on every rank: {found['required_local_tokens'] or 'none'}\n")
    buckets = [(str(b["bucket"]), str(b["captured"] or "-"), b["verdict"]) for b in found["buckets"]]
    printer.table(("bucket", "captured rows", "verdict"), buckets, numbers=("bucket", "captured rows"))
    printer.say(f"\nchosen: {found['chosen'] or 'none, the batch runs eager'}")
