"""What must hold for one batch on one rank, by comparing tensors; every sentence names rank and batch.

The order is the order of what finds most: rows that are there at all, paddings, replay beside eager, the reference,
the cache, the guards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from gpu_conformance.plan import SCRATCH, Plan, plan
from gpu_conformance.rank import Output, Rank, synthetic
from gpu_conformance.whole import Whole

Tensor = torch.Tensor
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """batch: its number in the run, cp_rank: who saw it; both are filled in where it is reported."""

    invariant: str
    sentence: str
    batch: int = -1
    cp_rank: int = -1


Findings = Iterator[Finding]


def rows_fit(batch: Plan, cp_rank: int, *, bucket: int, captured: int) -> Findings:
    live = len(batch.rows[cp_rank])
    if live > captured:
        yield Finding(
            invariant="capacity.no-overflow",
            sentence=f"rank {cp_rank} owns {live} rows, bucket {bucket} captured {captured} (lengths {told(batch)})",
        )


def captures_fit(rank: Rank, requests: Mapping[int, Sequence[int]], rows: Mapping[int, int]) -> Findings:
    """Capturing itself: the synthetic requests have the rows that they were given, and wrote nowhere else."""
    for bucket, lengths in requests.items():
        yield from rows_fit(plan(synthetic(lengths), rank.cp_size), rank.cp_rank, bucket=bucket, captured=rows[bucket])
    for name in rank.overwritten():
        told = f"rank {rank.cp_rank}: something was written beside {name} in the captures"
        yield Finding(invariant="data.in-bounds", sentence=told)


def rows_came_out(batch: Plan, cp_rank: int, out: Output) -> Findings:
    """A comparison over rows that exist passes on lost rows: they are counted first."""
    live, given = len(batch.rows[cp_rank]), len(out.hidden)
    if given < live:
        yield broken("replay-equals-eager", f"rank {cp_rank}: {given} rows came out, {live} are live", batch)
    if len(out.logits) != len(batch.sequences):
        told = f"rank {cp_rank}: logits of {len(out.logits)} requests came out, {len(batch.sequences)} are live"
        yield broken("replay-equals-eager", told, batch)


def replay_equals_eager(batch: Plan, cp_rank: int, out: Output, twin: Output) -> Findings:
    return same("between replay and eager", "replay-equals-eager", batch, cp_rank, out, twin)


def padding_inert(batch: Plan, cp_rank: int, out: Output, again: Output) -> Findings:
    return same("with another padding", "padding-inert", batch, cp_rank, out, again)


def history_free(batch: Plan, cp_rank: int, out: Output, fresh: Output) -> Findings:
    return same("after other batches", "history-free", batch, cp_rank, out, fresh)


def same(what: str, invariant: str, batch: Plan, cp_rank: int, one: Output, other: Output) -> Findings:
    """Live rows, logits and cache of two runs, to the last bit."""
    live = len(batch.rows[cp_rank])
    pairs = {"row": (one.hidden[:live], other.hidden[:live]), "logits of request": (one.logits, other.logits)}
    pairs["slot"] = (one.cache[:, SCRATCH + 1 :].transpose(0, 1), other.cache[:, SCRATCH + 1 :].transpose(0, 1))
    for name, (left, right) in pairs.items():
        if len(left) != len(right):
            yield broken(invariant, f"rank {cp_rank}: {len(left)} and {len(right)} {name}s came out {what}", batch)
        elif wrong := places(left, right, exactly=True):
            first = wrong[0] + (SCRATCH + 1 if name == "slot" else 0)
            yield broken(invariant, f"rank {cp_rank}: {name} {first} differs {what} ({len(wrong)} do)", batch)


def planned_slots_only(batch: Plan, cp_rank: int, before: Tensor, out: Output) -> Findings:
    """Rows of the cache that changed are rows that this batch writes."""
    changed = {place for layer in range(len(before)) for place in places(before[layer], out.cache[layer], exactly=True)}
    if foreign := sorted(changed - set(batch.slots) - {SCRATCH}):
        yield broken(
            "history-free", f"rank {cp_rank}: cache slot {foreign[0]} changed, which no row of the batch owns", batch
        )


def guards_intact(batch: Plan, cp_rank: int, overwritten: Sequence[str]) -> Findings:
    for name in overwritten:
        yield broken("in-bounds", f"rank {cp_rank}: something was written beside {name}", batch)


def right(batch: Plan, cp_rank: int, out: Output, expected: Sequence[Whole], *, exactly: bool) -> Findings:
    """Against every sequence computed alone: rows, the cached keys and values, logits."""
    own = batch.rows[cp_rank][: len(out.hidden)]
    new = torch.cat([one.hidden[request.prefix :] for one, request in zip(expected, batch.sequences, strict=True)])
    hidden = new[torch.tensor(own, dtype=torch.int64, device=new.device)]
    slots = [slot for request in batch.sequences for slot in request.slots]
    cached = torch.cat([one.kv for one in expected], dim=1).transpose(0, 1)
    pairs = {"row": (out.hidden[: len(own)], hidden), "slot": (out.cache[:, slots].transpose(0, 1), cached)}
    logits = torch.stack([one.logits for one in expected])
    pairs["logits of request"] = (out.logits[: len(logits)], logits[: len(out.logits)])
    for name, (left, right) in pairs.items():
        if wrong := places(left, right, exactly=exactly):
            where = slots[wrong[0]] if name == "slot" else wrong[0]
            off = float((left[wrong[0]] - right[wrong[0]]).abs().max())
            what = f"rank {cp_rank}: {name} {where} is off by {off:.2g} from the sequence alone ({len(wrong)} are)"
            yield broken("replay-equals-eager", what, batch)


def places(left: Tensor, right: Tensor, *, exactly: bool) -> list[int]:
    """Indices along the first axis at which two tensors differ. NaN differs from everything."""
    if torch.equal(left, right):
        return []
    assert left.shape == right.shape, f"{tuple(left.shape)} beside {tuple(right.shape)}: one of them would be spread"
    bound = 0.0 if exactly else TOLERANCE[left.dtype]
    off = ~((left - right).abs() <= bound)
    return off.flatten(1).any(1).nonzero().flatten().tolist()


def broken(invariant: str, sentence: str, batch: Plan) -> Finding:
    return Finding(invariant=f"data.{invariant}", sentence=f"{sentence} (lengths {told(batch)})")


def told(batch: Plan) -> str:
    lengths = ",".join(map(str, batch.lengths))
    return lengths if len(lengths) < 50 else f"{lengths[:47]}..."
