"""Passes of the negotiation, aimed at the places where delayers have gone wrong.

A case is drawn as a short list of segments (a run of equal passes) and written out pass by pass. The numbers of a pass
come from its deployment's thresholds: one below, on and one above. The largest running batch, size and queue may stand
on different ranks. Clocks advance by nothing, a part of the time limit or the limit: just short, exactly, just above.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from hypothesis import strategies as st

from cpbcg_ref.cases import Attempt, AttemptsCase, DelayerConfig, LastPassCase, Pass, PassesCase, RankReport, VotesCase
from cpbcg_ref.oracles.passes import WINDOW, queue_target, running_limit

MOST_PASSES = 24  # a long bound asks for more, up to 64
EDGE_MS = 0.1
KINDS = ("all", "all", "all", "mixed", "mixed", "none", "flicker")
ADVANCES = ((0.0, 0), (1.0, 0), (1.0, -1), (1.0, 1), (0.25, 0))  # of the time limit, and by how many EDGE_MS beside it
# Size, running batch and queue of a pass, as places in the lists of `largest`: by where they tend to end up.
QUEUE_HOLDS = tuple(product((0, 1, 3), (3,), (1, 4)))
SLOTS_HOLD = tuple(product((0, 1, 3), (1, 6), (1, 2, 4)))
ON_EDGE = tuple(product((0, 1, 3), (0, 2, 7, 8), (1, 2, 3, 5)))
ANYWHERE = tuple(product(range(6), range(9), range(7)))
CHOICES = (*QUEUE_HOLDS * 60, *SLOTS_HOLD * 20, *ON_EDGE * 8, *ANYWHERE)
# A rank's share of running batch, size and queue: 0 the same, 1 none, 2 one less. Last: does a rank that is not
# prefillable report its numbers (the callers in the releases report zeros)?
SHARES = tuple(sorted(product((0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 0, 0, 1)), key=sum))
NOBODY_LOW = (-1, 1.0)
Choice = tuple[int, int, int]
Configs = st.SearchStrategy[DelayerConfig]


@dataclass(frozen=True)
class Segment:
    """`times` equal passes (pairs of passes if they flicker)."""

    how: tuple[str, int, tuple[float, int]]  # kind, times, advance of the clocks before the first pass
    choice: Choice
    voters: int  # bit r: rank r is prefillable, where the kind leaves that open
    usage: tuple[int, float]  # a rank and its token usage
    shares: tuple[tuple[int, int, int, int], ...]
    skew: tuple[int, ...] = ()  # per rank, instead of the same place beside the limit for all


def delayer_configs(*, waits: bool = False) -> Configs:
    """Configurations at the edges; with `waits` only those in which a queue can be waited for in several passes."""
    return st.builds(
        DelayerConfig,
        dp_size=st.sampled_from((2, 1, 3, 4, 2, 3, 4, 8)),
        max_delay_passes=st.sampled_from((3, 4, 8) if waits else (3, 2, 1, 0, 4, 8)),
        max_running_requests=st.sampled_from((8, 9, 21, 64, 1024) if waits else (8, 1, 9, 21, 64, 1024)),
        max_delay_ms=st.sampled_from((500.0, 5000.0)),
        queue_min_ratio=st.sampled_from((0.5, 1.0, 0.29) if waits else (0.5, None, 1.0, 0.29, 0.02)),
        prefill_max_requests=st.sampled_from((None, 4, 128, 4) if waits else (None, 4, 128, 1)),
        token_usage_low_watermark=st.sampled_from((None, 0.8, 0.8)),
        enable_dp_attention=st.sampled_from((True, True, False)),
    )


def passes_cases(*, skewed: bool = False, config: DelayerConfig | None = None) -> st.SearchStrategy[PassesCase]:
    """Up to 24 passes of 1 to 8 ranks, more if the bound is longer; equal clocks unless `skewed`."""
    return timed_or_not(
        skewed, *[delayer_configs(waits=w) if config is None else st.just(config) for w in (False, True)]
    )


@st.composite
def timed_or_not(draw: st.DrawFn, skewed: bool, anything: Configs, waiting: Configs) -> PassesCase:
    """A third of the cases, two thirds of the skewed ones, let the timer of an open episode run out."""
    timed = draw(st.sampled_from((False, True, skewed)))
    config = draw(waiting if timed else anything)
    parts = draw_segments(draw, config, skewed=skewed)
    return PassesCase(config=config, passes=written(config, timer_runs_out(parts) if timed else parts))


def draw_segments(draw: st.DrawFn, config: DelayerConfig, *, skewed: bool = False, most: int = 5) -> list[Segment]:
    mark = config.token_usage_low_watermark
    return [Segment(*drawn) for drawn in draw(segments(ranks_of(config), config.max_delay_passes, mark, skewed, most))]


@cache
def segments(ranks: int, bound: int, watermark: float | None, skewed: bool, most: int) -> st.SearchStrategy[Any]:
    low = [NOBODY_LOW]
    if watermark is not None:
        values = (watermark, watermark / 2)
        low = [NOBODY_LOW] * 3 * ranks + [(rank, value) for value in values for rank in range(ranks)]
    one = st.tuples(  # made a Segment by the caller: a map over every element costs more than its draws
        st.sampled_from(tuple(product(KINDS, (1, 2, max(bound, 1), bound + 1, 3), ADVANCES))),
        st.sampled_from(CHOICES),
        st.integers(1, max(1, 2**ranks - 2)),
        st.sampled_from(low),
        st.tuples(*[st.sampled_from(SHARES)] * ranks),
        st.tuples(*[st.sampled_from((0, -1, 1))] * ranks) if skewed else st.just(()),
    )
    return st.lists(one, min_size=1, max_size=most)


def timer_runs_out(parts: list[Segment]) -> list[Segment]:
    """Put before these segments: the free pass, one delay that opens an episode, a held queue one time limit later."""
    first = replace(parts[0], usage=NOBODY_LOW)
    kind, _, (_, edge) = first.how
    held = first.choice if first.choice in QUEUE_HOLDS else QUEUE_HOLDS[0]
    return [
        replace(first, how=("all", 1, (0.0, 0)), choice=SLOTS_HOLD[0]),
        replace(first, how=("all" if kind == "all" else "mixed", 1, (0.0, 0)), choice=QUEUE_HOLDS[0]),
        replace(first, how=("all", 1, (1.0, edge)), choice=held),
        *parts[1:],
    ]


def written(config: DelayerConfig, parts: list[Segment]) -> tuple[Pass, ...]:
    """The passes of these segments. Every rank's clock stands still within a segment and never runs backwards."""
    passes: list[Pass] = []
    base, clocks = 0.0, (0.0,) * ranks_of(config)
    for part in parts:
        _, times, (limits, edge) = part.how
        if passes and limits:
            base += limits * config.max_delay_ms
            clocks = tuple(round(base + by * EDGE_MS, 1) for by in part.skew or [edge] * len(clocks))
        passes += [at(clocks, reports) for reports in one_segment(config, part)] * times
    return tuple(passes[: max(MOST_PASSES, min(config.max_delay_passes + 4, 64))])


def at(clocks: tuple[float, ...], reports: Pass) -> Pass:
    return tuple(replace(report, now_ms=now) for report, now in zip(reports, clocks, strict=True))


def one_segment(config: DelayerConfig, part: Segment) -> list[Pass]:
    """The different passes of a segment: one, or two that alternate."""
    top, kind = largest(part.choice, config), part.how[0]
    busy = spread(top, {"all": -1, "none": 0}.get(kind, part.voters), part)
    return [busy, spread(top, 0, part)] if kind == "flicker" else [busy]


def ranks_of(config: DelayerConfig) -> int:
    """Ranks in one gather: without DP attention every replica is alone."""
    return config.dp_size if config.enable_dp_attention else 1


def largest(choice: Choice, config: DelayerConfig) -> RankReport:
    """The largest size, running batch and queue of a pass, at a threshold of this deployment."""
    limit, ratio = running_limit(config), config.queue_min_ratio or 0.5
    cap = config.prefill_max_requests or 5
    size = min((1, 2, 0, cap, cap + 1, limit)[choice[0]], limit)
    first = int(1 / ratio)  # about the smallest running batch with a target
    running = (limit - size, limit - size + 1, limit - size - 1, limit // 2, 1, 0, limit, first - 1, first)[choice[1]]
    report = RankReport(prefillable=True, running_batch=min(max(running, 0), limit), max_prefill_bs=size)
    target = queue_target((report,), config)
    queue = (1, target - 1, target, target + 1, 0, limit - report.running_batch, size)[choice[2]]
    return replace(report, waiting_queue_len=max(queue, 0))


def spread(top: RankReport, voters: int, part: Segment) -> Pass:
    """One pass: every rank gets its share of the largest numbers; rank 0 has in full what nobody else has."""
    unclaimed = [all(mine[field] for mine in part.shares) for field in range(3)]
    rows = []
    for rank, mine in enumerate(part.shares):
        vote = bool(voters >> rank & 1)
        shares = [0 if rank == 0 and free else way for way, free in zip(mine, unclaimed, strict=False)]
        running, size, queue = shares if vote or mine[3] else (1, 1, 1)
        rows.append(
            RankReport(
                prefillable=vote,
                token_usage=part.usage[1] if rank == part.usage[0] else 1.0,
                running_batch=share(top.running_batch, running),
                max_prefill_bs=share(top.max_prefill_bs, size),
                waiting_queue_len=share(top.waiting_queue_len, queue),
            )
        )
    return tuple(rows)


def share(value: int, way: int) -> int:
    return (value, 0, max(value - 1, 0))[way]


def last_pass_cases(*, config: DelayerConfig | None = None) -> st.SearchStrategy[LastPassCase]:
    """Pairs of last passes in status `all` that differ in `max_prefill_bs`, or in the queues, of some ranks."""
    return (delayer_configs(waits=True) if config is None else st.just(config)).flatmap(pairs)


@st.composite
def pairs(draw: st.DrawFn, config: DelayerConfig) -> LastPassCase:
    part = replace(draw_segments(draw, config, most=1)[0], usage=NOBODY_LOW)
    history = draw(st.sampled_from(((takes_free_pass(config),),) * 3 + ((),)))
    if draw(st.sampled_from((False, False, True))):
        history += written(config, draw_segments(draw, config, most=1))
    tops = draw(st.sampled_from((two_sizes, two_queues)))(draw, config, part)
    now = history[-1][0].now_ms if history else 0.0
    clocks = (now + part.how[2][0] * config.max_delay_ms,) * ranks_of(config)
    last, other_last = (at(clocks, spread(top, -1, part)) for top in tops)
    return LastPassCase(config=config, history=history, last=last, other_last=other_last)


def takes_free_pass(config: DelayerConfig) -> Pass:
    """All slots are taken: the slot condition holds, and the first such pass is let through."""
    report = RankReport(prefillable=True, running_batch=running_limit(config), max_prefill_bs=1)
    return (report,) * ranks_of(config)


def two_sizes(draw: st.DrawFn, config: DelayerConfig, _: Segment) -> tuple[RankReport, RankReport]:
    """The slot condition is false for both sizes; the queue stands around what either size makes of the target."""
    limit, ratio = running_limit(config), config.queue_min_ratio or 0.5
    running = draw(st.sampled_from((limit // 2, limit * 3 // 4, limit // 3, max(limit - 2, 0))))
    free, wanted = limit - running, int(running * ratio)
    one = min(draw(st.sampled_from((1, 0, 2))), free)
    other = min(max(draw(st.sampled_from((free, wanted, config.prefill_max_requests or 3))), one + 1), free)
    cap = min(wanted, config.prefill_max_requests or wanted)
    queue = max(draw(st.sampled_from((one, cap - 1, cap, other, 0))), 0)
    top = RankReport(prefillable=True, running_batch=running, max_prefill_bs=one, waiting_queue_len=queue)
    return top, replace(top, max_prefill_bs=other)


def two_queues(draw: st.DrawFn, config: DelayerConfig, part: Segment) -> tuple[RankReport, RankReport]:
    top = largest(part.choice, config)
    return top, replace(top, waiting_queue_len=top.waiting_queue_len + draw(st.sampled_from((1, 2, 40))))


ATTEMPTS = (
    Attempt(admitted=1),
    Attempt(),
    Attempt(admitted=20),
    Attempt(queue=1, free_slots=4),
    Attempt(queue=9, free_slots=0),
    Attempt(queue=9, free_slots=4),
    Attempt(admitted=2),
)


def attempts_cases() -> st.SearchStrategy[AttemptsCase]:
    """Bursts, small attempts around the length of the window, rejected ones and idle passes."""
    run = st.tuples(st.sampled_from(ATTEMPTS), st.sampled_from((1, WINDOW, 2, WINDOW - 1, WINDOW + 1)))
    return st.lists(run, min_size=1, max_size=5).map(
        lambda runs: AttemptsCase(attempts=tuple(attempt for attempt, times in runs for _ in range(times)))
    )


def votes_cases() -> st.SearchStrategy[VotesCase]:
    """Ranks with and without a chunk in progress, with and without new requests."""
    rank = st.tuples(st.booleans(), st.integers(0, 2))
    return st.lists(rank, min_size=1, max_size=4).map(
        lambda ranks: VotesCase(mid_chunk=tuple(r[0] for r in ranks), waiting=tuple(r[1] for r in ranks))
    )
