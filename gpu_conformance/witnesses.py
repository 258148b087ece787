"""Interesting batches: a run that never met one has proved nothing about the id that asks for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cpbcg_ref import is_cp_active, required_local_tokens
from gpu_conformance.work import EAGER
from gpu_conformance.workloads import overflows

OVERFLOW = "the bucket of the tokens alone has too few rows"


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch that was served. earlier: tokens of the largest batch that was replayed in its bucket before."""

    lengths: tuple[int, ...]
    prefixes: tuple[int, ...]
    chunked: bool
    bucket: int
    captured: dict[int, int]
    cp_size: int
    earlier: int

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


Witness = Callable[[Batch], bool]


def would_overflow(batch: Batch) -> bool:
    """The smallest bucket for the tokens has too few rows."""
    alone = min((bucket for bucket in batch.captured if batch.tokens <= bucket <= 2 * batch.tokens), default=None)
    if alone is None or not is_cp_active(batch.lengths, cp_size=batch.cp_size):
        return False
    return (required_local_tokens(batch.lengths, cp_size=batch.cp_size) or 0) > batch.captured[alone]


def padded(batch: Batch) -> bool:
    return batch.bucket > batch.tokens


def full(batch: Batch) -> bool:
    return batch.bucket == batch.tokens


WITNESSES: dict[str, dict[str, Witness]] = {
    "capacity.no-overflow": {OVERFLOW: would_overflow},
    "agree.bucket": {"replayed": lambda batch: batch.bucket != EAGER},
    "agree.mode": {"replayed": lambda batch: batch.bucket != EAGER, "eager": lambda batch: batch.bucket == EAGER},
    "agree.collectives": {},
    "data.replay-equals-eager": {
        "a full bucket": full,
        "a cached prefix": lambda batch: batch.bucket != EAGER and any(batch.prefixes),
        "a prompt that goes on": lambda batch: batch.bucket != EAGER and batch.chunked and any(batch.prefixes),
    },
    "data.history-free": {"after a larger batch in the same bucket": lambda batch: batch.earlier > batch.tokens},
    "data.padding-inert": {"padding rows": padded},
    "data.in-bounds": {"a full bucket": full},
}
BROUGHT = {
    "edges": {witness for named in WITNESSES.values() for witness in named},
    "gqa": {"replayed", "a cached prefix", "a prompt that goes on", "padding rows"},
    "golden": {"replayed", OVERFLOW, "padding rows"},
    "trace": {"replayed", "a prompt that goes on", "padding rows"},
}


def met(invariant: str, done: Sequence[Any]) -> dict[str, int]:
    """In how many batches each witness came up, of those that the workloads of this run must bring."""
    brought = set().union(*(BROUGHT.get(one.group.workload, set()) for one in done))
    if not any(any(overflows(one.group.server)) for one in done):
        brought -= {OVERFLOW}  # no batch of this ladder can
    batches = [batch for one in done for batch in served(one)]
    wanted = {name: witness for name, witness in WITNESSES.get(invariant, {}).items() if name in brought}
    return {name: sum(map(witness, batches)) for name, witness in wanted.items()}


def served(one: Any) -> Iterator[Batch]:
    """The batches that rank 0 of a group ran."""
    largest: dict[int, int] = {}
    for number, bucket in one.seen[0].chosen if one.seen else ():
        offer = one.group.offers[number]
        lengths = tuple(len(request.tokens) - request.prefix for request in offer.requests)
        prefixes = tuple(request.prefix for request in offer.requests)
        told = {"bucket": bucket, "earlier": largest.get(bucket, 0) if bucket else 0, "chunked": offer.chunked}
        captured = dict(one.seen[0].captured)
        yield Batch(lengths=lengths, prefixes=prefixes, captured=captured, cp_size=one.cp_size, **told)
        largest[bucket] = max(largest.get(bucket, 0), sum(lengths))
