"""Small worlds of the negotiation: a configuration, and what one rank can report in a pass.

`now_ms` of a report is how far the rank's clock moves before this pass: not at all, or by the whole time limit. Every
rank takes every report in every pass, so status and timers interleave in all ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from cpbcg_ref.cases import DelayerConfig, RankReport

LIMIT_MS = 1000.0
LOW, EQUAL = 0.25, 0.5  # token usage below the watermark, and at it
Numbers = tuple[int, int, int]  # running, size, queue
FEW = 3  # reports of a rank that votes yes, where three ranks or more would make too many


@dataclass(frozen=True, kw_only=True)
class Domain:
    """reports: all that one rank can report; ranks: of one gather, 1 without DP attention."""

    config: DelayerConfig
    reports: tuple[RankReport, ...]

    @property
    def ranks(self) -> int:
        return self.config.dp_size if self.config.enable_dp_attention else 1

    @property
    def passes(self) -> list[tuple[RankReport, ...]]:
        """Every pass that there can be."""
        return list(product(self.reports, repeat=self.ranks))


def domains(ranks: int) -> dict[str, Domain]:
    """By name. Each is about one thing, with the numbers on both sides of its thresholds."""
    four: list[Numbers] = [(4, 1, 1), (3, 1, 1), (1, 3, 1), (0, 1, 1)]  # of 4 slots: full, just enough, and enough
    idle = RankReport(prefillable=False)
    slots = {f"slots, bound {bound}": domain(ranks, bound, 4, [*reports(four), idle]) for bound in (0, 1, 2, 3)}
    queue: list[Numbers] = [(4, size, waiting) for size, waiting in product((3, 1), (2, 0, 3))]
    wait = reports([*queue, (1, 1, 0)])
    short = reports([(4, size, waiting) for size, waiting in product((2, 1), (1, 2, 4))])
    marked = [replace(one, token_usage=usage) for usage in (LOW, EQUAL) for one in reports([(4, 1, 1), (0, 1, 1)])]
    both = reports([(4, 1, 0), (3, 1, 0), (3, 1, 2)])
    every = [*both[:3], replace(both[2], token_usage=LOW), both[3]]
    alone = reports([(3, 1, 1), (2, 1, 2), (2, 1, 1), (2, 1, 3)])  # of 3 slots: as many as rounding up leaves a replica
    capped = {"queue_min_ratio": 1.0, "prefill_max_requests": 4}
    ratio, mark = {"queue_min_ratio": 0.75}, {"token_usage_low_watermark": EQUAL}
    return slots | {
        "queue, bound 2": domain(ranks, 2, 8, timed(wait), **ratio),
        "timers, bound 3": domain(ranks, 3, 8, timed([*wait[:1], *wait[2:4]]), **ratio),
        "timers, bound 4": domain(ranks, 4, 8, timed([wait[0], wait[2]]), **ratio),
        "cap": domain(ranks, 2, 6, timed(short), **capped),
        "watermark": domain(ranks, 2, 4, marked, **mark),
        "everything": domain(ranks, 2, 4, timed(every), **ratio, **mark),
        "replicas": domain(ranks, 3, 3 * ranks - 1, timed(alone), enable_dp_attention=False, **capped),
    }


def domain(ranks: int, bound: int, limit: int, can: Sequence[RankReport], **more: object) -> Domain:
    known = {"dp_size": ranks, "max_delay_passes": bound, "max_running_requests": limit, "max_delay_ms": LIMIT_MS}
    config = DelayerConfig(**known, **more)  # type: ignore[arg-type]
    return Domain(config=config, reports=tuple(thinned(can) if ranks > 2 else can))


def reports(numbers: Sequence[Numbers]) -> list[RankReport]:
    """A rank with nothing to prefill, which reports its first numbers all the same, and one that votes with each."""
    votes = [(False, numbers[0]), *((True, one) for one in numbers)]
    return [
        RankReport(prefillable=vote, running_batch=running, max_prefill_bs=size, waiting_queue_len=waiting)
        for vote, (running, size, waiting) in votes
    ]


def timed(can: Sequence[RankReport]) -> list[RankReport]:
    return [replace(one, now_ms=moved) for moved in (0.0, LIMIT_MS) for one in can]


def thinned(can: Sequence[RankReport]) -> list[RankReport]:
    """Of each movement of the clock the first that votes no and a few that vote yes."""
    kept: list[RankReport] = []
    for vote, moved in product((False, True), (0.0, LIMIT_MS)):
        alike = [one for one in can if one.prefillable is vote and one.now_ms == moved]
        kept += alike[: FEW if vote else 1]
    return kept
