"""What one rank does from start to end: capture, then every batch chosen, announced, run five times and compared."""

import time
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from cpbcg_ref.answers import Captured, Raised
from gpu_conformance import checks
from gpu_conformance.buffers import Fill
from gpu_conformance.checks import Finding
from gpu_conformance.model import AllGather, Doing, Model
from gpu_conformance.plan import Plan, Request, plan
from gpu_conformance.rank import Output, Rank
from gpu_conformance.whole import Whole, whole

Decide = Callable[..., int | Raised | None]  # of (started engine, batch, *, cp_rank, number of the batch)
EAGER, RAISED = 0, -1  # in a header: no bucket, the engine raised
END = -1  # in a header: no batch is left
OTHER_FILL = Fill(token=5, position=9, attended=3.0)
HEADER = ("batch", "bucket", "tokens", "checksum of the lengths")
AGREE = ("agree.collectives", "agree.bucket", "agree.collectives", "agree.collectives")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One batch. Prefixes were prefilled before: by earlier batches of this run if `chunked`."""

    requests: tuple[Request, ...]
    chunked: bool = False


@dataclass(kw_only=True)
class Seen:
    """What a rank reports when it is done. Plain data: it crosses processes."""

    cp_rank: int
    findings: list[Finding] = field(default_factory=list)
    judged: dict[str, int] = field(default_factory=dict)  # per id, batches
    seconds: dict[str, float] = field(default_factory=dict)  # per stage; other ranks' waiting included
    replayed: int = 0
    eager: int = 0
    replayed_tokens: int = 0
    padded: int = 0  # rows of the replayed buckets, all ranks
    number: int = -1  # of the batch that is judged
    captured: list[tuple[int, int]] = field(default_factory=list)  # (bucket, rows of each rank)
    chosen: list[tuple[int, int]] = field(default_factory=list)  # (number, bucket or EAGER) of every batch served

    @contextmanager
    def timed(self, stage: str) -> Generator[None, None, None]:
        began = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def judge(self, ids: str, found: Sequence[Finding]) -> None:
        for name in ids.split():
            self.judged[name] = self.judged.get(name, 0) + 1
        self.findings += [replace(one, batch=self.number, cp_rank=self.cp_rank) for one in found]


def work(
    rank: Rank,
    started: Any,
    captured: Captured | Raised,
    offers: Iterable[tuple[int, Offer]],
    *,
    decide: Decide,
    seen: Seen | None = None,
) -> Any:
    """The generator of a rank: capture every bucket, then serve every numbered batch. seen: what to report in.

    Ranks that are not at the same batch end here: what one sends is not what the others take it for.
    """
    seen, ran = seen or Seen(cp_rank=rank.cp_rank), False
    alike = yield from captured_alike(seen, captured)
    if not alike or isinstance(captured, Raised):
        return seen
    rows = dict(captured.bucket_local_tokens)
    seen.captured = list(rows.items())
    with seen.timed("capture"):
        yield from rank.capture(dict(captured.requests), rows)
    seen.judge("", list(checks.captures_fit(rank, dict(captured.requests), rows)))
    for number, offer in offers:
        seen.number = number
        yield Doing(what=f"batch {number}: choosing a bucket")
        batch = plan(offer.requests, rank.cp_size)
        bucket = decide(started, batch, cp_rank=rank.cp_rank, number=number)
        told_alike = yield from announced(seen, batch, number, bucket)
        if not told_alike[0]:
            return seen
        before, ran = ran, False
        if all(told_alike) and not isinstance(bucket, Raised):
            ran = True
            seen.chosen.append((number, bucket or EAGER))
            yield from serve(rank, seen, batch, bucket, rows, chunked=offer.chunked and before)
        elif isinstance(bucket, Raised):
            said = f"rank {rank.cp_rank}: the engine raised {bucket}, nothing was computed"
            seen.judge("data.replay-equals-eager", [checks.broken("replay-equals-eager", said, batch)])
    seen.number += 1
    found, _ = yield from compared([END, EAGER, 0, 0], "the end")  # a rank that ended early would be waited for
    seen.judge("", found)
    return seen


def captured_alike(seen: Seen, captured: Captured | Raised) -> Any:
    """Has every rank the same ladder to capture: the collectives of another would never meet."""
    mine = RAISED if isinstance(captured, Raised) else zlib.crc32(repr(captured).encode())
    column = (yield AllGather(what="headers of the ladder", rows=torch.tensor([[mine]]))).flatten().tolist()
    found = []
    if isinstance(captured, Raised):
        sentence = f"rank {seen.cp_rank}: the engine raised {captured} at capture, nothing can be replayed"
        found = [Finding(invariant="data.replay-equals-eager", sentence=sentence)]
    if len(set(column)) > 1:
        words = ("raised" if one == RAISED else f"a ladder with the checksum {one}" for one in column)
        said = ", ".join(f"rank {rank} {what}" for rank, what in enumerate(words))
        found.append(Finding(invariant="agree.collectives", sentence=f"at capture: {said}"))
    seen.judge("", found)
    return not found


def announced(seen: Seen, batch: Plan, number: int, bucket: int | Raised | None) -> Any:
    """Compare headers before the batch: ranks that part ways would hang. Per column: are all alike."""
    checksum, chosen = zlib.crc32(repr(batch.lengths).encode()), RAISED if isinstance(bucket, Raised) else bucket
    header = [number, chosen or EAGER, len(batch.tokens), checksum]
    found, alike = yield from compared(header, f"batch {number} (lengths {checks.told(batch)})")
    seen.judge("agree.bucket agree.mode agree.collectives", found)
    return alike


def compared(header: list[int], where: str) -> Any:
    """What differs between the ranks' headers, and per column whether all are alike."""
    columns = (yield AllGather(what="headers", rows=torch.tensor([header]))).T.tolist()
    alike = [len(set(column)) == 1 for column in columns]
    table = zip(HEADER, AGREE, columns, alike, strict=True)
    found = [differing(name, invariant, column, where) for name, invariant, column, same in table if not same]
    return found if alike[0] else found[:1], alike  # of different batches everything differs


def differing(name: str, invariant: str, column: list[int], where: str) -> Finding:
    words = {"batch": {END: "none left"}, "bucket": {EAGER: "eager", RAISED: "raised"}}.get(name, {})
    said = ", ".join(f"rank {rank} {words.get(value, value)}" for rank, value in enumerate(column))
    parts = name == "bucket" and not {EAGER, RAISED}.isdisjoint(column)
    return Finding(invariant="agree.mode" if parts else invariant, sentence=f"{where}: {name}: {said}")


def serve(rank: Rank, seen: Seen, batch: Plan, bucket: int | None, rows: dict[int, int], *, chunked: bool) -> Any:
    """Run one batch every way there is and compare. chunked: the batch before cached the prefixes."""
    expected = []
    for request in batch.sequences:
        yield Doing(what=f"batch {seen.number}: reference")  # of each: a long prompt alone takes seconds
        with seen.timed("reference"):
            expected.append(alone(rank.truth, request.tokens))
    if not chunked:
        for request, one in zip(batch.sequences, expected, strict=True):
            rank.cache.rows[:, list(request.slots[: request.prefix])] = one.kv[:, : request.prefix]
    if bucket is not None:
        captured = rows.get(bucket, 0)
        fitting = checks.rows_fit(batch, rank.cp_rank, bucket=bucket, captured=captured)
        seen.judge("capacity.no-overflow", list(fitting))
    before = rank.cache.rows.clone()
    if bucket in rank.graphs:
        out = yield from run_graph(rank, seen, batch, bucket, rows[bucket], expected)
    else:
        out = yield from run_eager(rank, seen, batch, expected)
    written = checks.planned_slots_only(batch, rank.cp_rank, before, out)
    seen.judge("", [*written, *checks.guards_intact(batch, rank.cp_rank, rank.overwritten())])
    rank.cache.rows.copy_(out.cache)  # the next chunk stands on what this one wrote


def run_eager(rank: Rank, seen: Seen, batch: Plan, expected: list[Whole]) -> Any:
    """Two paddings; there is nothing else to compare with than each sequence alone."""
    seen.eager += 1
    before, rows = rank.cache.rows.clone(), max(map(len, batch.rows))
    yield Doing(what=f"batch {seen.number}: eager")
    with seen.timed("eager"):
        out = yield from rank.eager(batch, rows)
    again = yield from rerun(rank, before, rank.eager(batch, rows, fill=OTHER_FILL))
    seen.judge("data.replay-equals-eager", list(right(rank, batch, out, expected)))
    seen.judge("data.padding-inert", list(checks.padding_inert(batch, rank.cp_rank, out, again)))
    return out


def right(rank: Rank, batch: Plan, out: Output, expected: list[Whole]) -> checks.Findings:
    """All live rows came out, and they are those of every sequence alone."""
    yield from checks.rows_came_out(batch, rank.cp_rank, out)
    exactly = rank.truth.arithmetic.name == "exact"
    yield from checks.right(batch, rank.cp_rank, out, expected, exactly=exactly)


def run_graph(rank: Rank, seen: Seen, batch: Plan, bucket: int, rows: int, expected: list[Whole]) -> Any:
    """Replayed as it comes, with another padding and after nothing else; computed eagerly with as many rows."""
    seen.replayed += 1
    seen.replayed_tokens += len(batch.tokens)
    seen.padded += rows * rank.cp_size
    before, own = rank.cache.rows.clone(), rank.cp_rank
    yield Doing(what=f"batch {seen.number}: replay")
    with seen.timed("replay"):
        out = yield from rank.replay(batch, bucket)
    fresh = yield from rerun(rank, before, rank.replay(batch, bucket, fresh=True))
    again = yield from rerun(rank, before, rank.replay(batch, bucket, fresh=True, fill=OTHER_FILL))
    yield Doing(what=f"batch {seen.number}: eager")
    with seen.timed("eager"):  # a batch that overflows is computed with the rows that it needs
        twin = yield from rerun(rank, before, rank.eager(batch, max(rows, *map(len, batch.rows))))
    beside = [*checks.replay_equals_eager(batch, own, out, twin), *right(rank, batch, out, expected)]
    seen.judge("data.replay-equals-eager", beside)
    seen.judge("data.padding-inert", list(checks.padding_inert(batch, own, fresh, again)))
    seen.judge("data.history-free", list(checks.history_free(batch, own, out, fresh)))
    seen.judge("data.in-bounds", [])  # its guards are looked at when all is done
    return out


def rerun(rank: Rank, before: torch.Tensor, run: Any) -> Any:
    """From the cache as it was."""
    rank.cache.rows.copy_(before)
    return (yield from run)


@lru_cache(512)
def alone(model: Model, tokens: tuple[int, ...]) -> Whole:
    return whole(model, tokens)
