"""The picture beside a violation: what every rank had and did, as plain text tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.answers import Captured, Loaded, Raised, Verdict
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import Turn, padded, turns
from cpbcg_ref.invariants.layout import live
from cpbcg_ref.oracles.buckets import fitting, refusal
from cpbcg_ref.oracles.tokens import live_rows


def picture(case: Any, seen: Any, contract: Contract) -> str:
    """Per rank: rows, buckets and why each was refused, or passes and verdicts; depends on the kind of case."""
    return "\n".join(PICTURES[type(case)](case, seen, contract))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Columns as wide as their longest cell; below them each error once, in full."""
    rows = list(rows)
    lines = [list(head), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    errors = dict.fromkeys(str(cell) for row in rows for cell in row if isinstance(cell, Raised))
    spaced = (zip(line, widths, strict=True) for line in lines)
    return [*("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in spaced), *errors]


def shown(value: Any) -> str:
    if isinstance(value, Raised):
        return value.kind
    if isinstance(value, Loaded):
        return f"bucket {value.bucket}, {shown(value.live_rows)} of {shown(value.captured_rows)} rows"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def of_rank(answers: Any, rank: int) -> Any:
    """One rank's answer; a `Raised` stands for all ranks."""
    return answers if answers is None or isinstance(answers, Raised) else answers[rank] if answers else None


def bucket_verdicts(
    *,
    num_tokens: int,
    required_local_tokens: int,
    capture_num_tokens: Iterable[int],
    bucket_local_tokens: Mapping[int, int],
    max_padding_factor: int = 2,
    min_replay_bucket: int = 0,
) -> list[tuple[int, int | None, str]]:
    """(bucket, captured rows, verdict) of every bucket: chosen, or why not.

    >>> bucket_verdicts(num_tokens=27, required_local_tokens=16, capture_num_tokens=[32], bucket_local_tokens={32: 8})
    [(32, 8, 'too few rows: 8 captured, 16 needed')]
    """
    case = cases.SelectCase(
        num_tokens=num_tokens,
        required_local_tokens=required_local_tokens,
        capture_num_tokens=tuple(capture_num_tokens),
        bucket_local_tokens=tuple(bucket_local_tokens.items()),
        max_padding_factor=max_padding_factor,
        min_replay_bucket=min_replay_bucket,
    )
    return verdicts(case)


def verdicts(case: cases.SelectCase) -> list[tuple[int, int | None, str]]:
    rows, able = dict(case.bucket_local_tokens), fitting(case)
    fits = {bucket: "chosen" if bucket == able[0] else f"fits, {able[0]} is smaller" for bucket in able}
    ladder = case.capture_num_tokens
    return [(bucket, rows.get(bucket), fits.get(bucket) or refusal(case, bucket)) for bucket in ladder]


BUCKETS = ("bucket", "captured rows", "by the specification")


def of_layout(case: cases.LayoutCase, seen: Any, contract: Contract) -> list[str]:
    owned = live_rows(case.batch.lengths, case.cp_size, case.strategy, contract.blocks)
    need = padded(max(owned), case.cp_size, case.strategy, contract)
    rows = []
    for rank, count in enumerate(owned):
        shard, answer = of_rank(seen.rows, rank), of_rank(seen.required, rank)
        made = shard if shard is None or isinstance(shard, Raised) else f"{len(live(shard))} of {len(shard)}"
        rows.append((rank, count, need, answer, made, of_rank(seen.segments, rank)))
    return table(("rank", "live", "padded", "required", "tokens in shard", "(rows, keys)"), rows)


def of_bad_layout(case: cases.BadLayoutCase, seen: Any, contract: Contract) -> list[str]:
    ranks = range(case.cp_size)
    rows = [(r, of_rank(seen.active, r), of_rank(seen.required, r), of_rank(seen.rows, r)) for r in ranks]
    return table(("rank", "CP active", "required", "shard"), rows)


def of_select(case: cases.SelectCase, seen: Any, contract: Contract) -> list[str]:
    asked = f"{case.num_tokens} tokens, {case.required_local_tokens} rows per rank: answered {shown(seen.answer)}"
    return [asked, *table(BUCKETS, verdicts(case))]


def of_pair(case: cases.SelectPairCase, seen: Any, contract: Contract) -> list[str]:
    return [*of_select(case.base, seen.base, contract), "", *of_select(case.more, seen.more, contract)]


def of_capture(case: cases.CaptureCase, seen: Any, contract: Contract) -> list[str]:
    rows: list[tuple[Any, ...]] = []
    for rank, captured in enumerate(seen.ranks):
        known = dict(captured.bucket_local_tokens) if isinstance(captured, Captured) else {}
        requests: Any = captured.requests if isinstance(captured, Captured) else [(None, captured)]
        rows += [(rank, bucket, known.get(bucket), lengths) for bucket, lengths in requests]
    return table(("rank", "bucket", "captured rows", "requests"), rows)


def of_replay(case: cases.ReplayCase, seen: Any, contract: Contract) -> list[str]:
    """Per batch, one line per rank and the buckets as rank 0 captured them."""
    lines: list[str] = []
    every = list(turns(case, seen, contract))
    for batch, got in zip(case.batches, seen.batches, strict=True):
        mine = [turn for turn in every if turn.seen is got]
        lines += ["", f"lengths {','.join(map(str, batch.lengths)) or 'none'}: {batch.num_tokens} tokens"]
        head = ("rank", "live", "padded", "captured", "active", "admitted", "selected", "replayed")
        lines += table(head, [replay_row(turn) for turn in mine])
        if mine and not mine[0].why_eager:
            lines += table(BUCKETS, verdicts(mine[0].question()))
    return lines[1:]


def replay_row(turn: Turn) -> tuple[Any, ...]:
    rank, got = turn.rank, turn.seen
    rows = (None, None) if turn.why_eager else (turn.live[rank], turn.required)
    return (rank, *rows, turn.rows, got.active[rank], turn.admitted, got.bucket[rank], turn.loaded)


PASS = ("pass", "rank", "prefillable", "usage", "running", "size", "waiting", "clock ms", "verdict", "reason", "wait")


def pass_rows(number: Any, reports: cases.Pass, answers: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows = []
    for rank, (r, verdict) in enumerate(zip(reports, answers, strict=True)):
        known = (r.prefillable, r.token_usage, r.running_batch, r.max_prefill_bs, r.waiting_queue_len, r.now_ms)
        said: tuple[Any, ...] = (verdict, "", "")
        if isinstance(verdict, Verdict):
            said = ("allow" if verdict.allow else "delay", verdict.reason, verdict.wait_passes)
        rows.append((number, rank, *known, *said))
    return rows


def of_passes(case: cases.PassesCase, seen: Any, contract: Contract) -> list[str]:
    both = enumerate(zip(case.passes, seen.passes, strict=True), start=1)
    return table(PASS, [row for number, (reports, said) in both for row in pass_rows(number, reports, said)])


def of_last_pass(case: cases.LastPassCase, seen: Any, contract: Contract) -> list[str]:
    history = zip(case.history, seen.history, strict=False)  # an adapter may keep no history
    rows = [row for number, one in enumerate(history, start=1) for row in pass_rows(number, *one)]
    rows += pass_rows("last", case.last, seen.last) + pass_rows("other last", case.other_last, seen.other_last)
    return table(PASS, rows)


def of_attempts(case: cases.AttemptsCase, seen: Any, contract: Contract) -> list[str]:
    both = enumerate(zip(case.attempts, seen.max_prefill_bs, strict=True), start=1)
    rows = [(number, one.admitted, one.queue, one.free_slots, size) for number, (one, size) in both]
    return table(("pass", "admitted", "queue", "free slots", "max_prefill_bs"), rows)


def of_votes(case: cases.VotesCase, seen: Any, contract: Contract) -> list[str]:
    ranks = enumerate(zip(case.mid_chunk, case.waiting, seen.prefillable, strict=True))
    return table(("rank", "chunk in progress", "new requests", "votes prefillable"), [(n, *one) for n, one in ranks])


PICTURES: dict[type, Callable[[Any, Any, Contract], list[str]]] = {
    cases.LayoutCase: of_layout,
    cases.BadLayoutCase: of_bad_layout,
    cases.SelectCase: of_select,
    cases.SelectPairCase: of_pair,
    cases.CaptureCase: of_capture,
    cases.ReplayCase: of_replay,
    cases.PassesCase: of_passes,
    cases.LastPassCase: of_last_pass,
    cases.AttemptsCase: of_attempts,
    cases.VotesCase: of_votes,
}
