"""Passes of the negotiation, aimed at the places where delayers have gone wrong.

A case is a few segments (runs of equal passes), written out pass by pass. The numbers of a pass come from its
deployment's thresholds: one below, on and one above. The largest running batch, size and queue may stand on different
ranks. Clocks advance by nothing, a part of the time limit or the limit: just short, exactly, just above.

A case is read off one string of bytes. Drawn as a tree of choices, five of six generated cases would be Hypothesis's
own variations of the case before (it copies equal parts over each other), with the same configuration. Byte 0 always
picks the simplest, so a shrunk case is mostly zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from hypothesis import strategies as st

from cpbcg_ref.cases import Attempt, AttemptsCase, DelayerConfig, LastPassCase, Pass, PassesCase, RankReport, VotesCase
from cpbcg_ref.oracles.passes import WINDOW, queue_target, running_limit

MOST_PASSES = 24  # a long bound asks for more, up to 64
MOST_SEGMENTS = 5
MOST_RANKS = 8
EDGE_MS = 0.1
KINDS = ("all", "all", "all", "mixed", "mixed", "none", "flicker")
ADVANCES = ((0.0, 0), (1.0, 0), (1.0, -1), (1.0, 1), (0.25, 0))  # of the time limit, and by how many EDGE_MS beside it
# Size, running batch and queue of a pass, as places in the lists of `largest`: by where they tend to end up.
QUEUE_HOLDS = tuple(product((0, 1, 3), (3, 2), (1, 4)))
SLOTS_HOLD = tuple(product((0, 1, 3), (1, 6), (1, 2, 4)))
ON_EDGE = tuple(product((0, 1, 3), (3, 0, 2, 8), (2, 3, 1, 5)))
ANYWHERE = tuple(sorted(product(range(6), range(9), range(7)), key=sum))[:255]
POOLS = (QUEUE_HOLDS, SLOTS_HOLD, ON_EDGE, ANYWHERE)
# A rank's share of running batch, size and queue: 0 the same, 1 none, 2 one less. Last: does a rank that is not
# prefillable report its numbers (the callers in the releases report zeros)?
SHARES = tuple(sorted(product((0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 0, 0, 1)), key=sum))
NOBODY_LOW = (-1, 1.0)
Choice = tuple[int, int, int]
T = TypeVar("T")
CONFIG_BYTES, SEGMENT_BYTES = 16, 8 + 2 * MOST_RANKS
CASE_BYTES = CONFIG_BYTES + MOST_SEGMENTS * SEGMENT_BYTES


def pick(byte: int, options: Sequence[T]) -> T:
    return options[byte % len(options)]


@dataclass(frozen=True)
class Segment:
    """`times` equal passes (pairs of passes if they flicker)."""

    kind: str
    times: int
    advance: tuple[float, int]  # of the clocks before the first pass
    choice: Choice
    voters: int  # bit r: rank r is prefillable, where the kind leaves that open
    usage: tuple[int, float]  # a rank and its token usage
    shares: tuple[tuple[int, int, int, int], ...]
    skew: tuple[int, ...] = ()  # per rank, instead of the same place beside the limit for all


Script = Callable[[list[Segment]], list[Segment]]


def delayer_configs() -> st.SearchStrategy[DelayerConfig]:
    """Configurations at the edges: bounds from 0, odd limits, ratios that truncate, with and without caps."""
    return st.binary(min_size=CONFIG_BYTES, max_size=CONFIG_BYTES).map(config_of)


def config_of(data: bytes, *, waits: bool = False) -> DelayerConfig:
    """With `waits` only configurations in which a queue can be waited for in several passes."""
    return DelayerConfig(
        dp_size=pick(data[0], (2, 1, 3, 4, 2, 3, 4, 8)),
        max_delay_passes=pick(data[1], (3, 4, 8) if waits else (3, 2, 1, 0, 4, 8)),
        max_running_requests=pick(data[2], (8, 9, 21, 64, 1024) if waits else (8, 9, 1, 21, 64, 1024)),
        max_delay_ms=pick(data[3], (500.0, 5000.0)),
        queue_min_ratio=pick(data[4], (0.5, 1.0, 0.29) if waits else (0.5, None, 1.0, 0.29, 0.02)),
        prefill_max_requests=pick(data[5], (None, 4, 128) if waits else (None, 4, 128, 1)),
        token_usage_low_watermark=pick(data[6], (None, 0.8, 0.8)),
        enable_dp_attention=pick(data[7], (True, True, False)),
    )


def passes_cases(*, skewed: bool = False, config: DelayerConfig | None = None) -> st.SearchStrategy[PassesCase]:
    """Up to 24 passes of 1 to 8 ranks, more if the bound is longer; equal clocks unless `skewed`."""

    def case(data: bytes) -> PassesCase:
        scripts: tuple[Script, ...] = (spent, timer_runs_out) if skewed else (list, spent, timer_runs_out)
        script = pick(data[8], scripts)
        drawn = config or config_of(data, waits=script is timer_runs_out)
        parts = segments(drawn, data, skewed)
        parts = [part for part in parts if part.times] or [replace(parts[0], times=1)]
        return PassesCase(config=drawn, passes=written(drawn, script(parts)))

    return st.binary(min_size=CASE_BYTES, max_size=CASE_BYTES).map(case)


def segments(config: DelayerConfig, data: bytes, skewed: bool = False) -> list[Segment]:
    begins = range(CONFIG_BYTES, CASE_BYTES, SEGMENT_BYTES)
    return [segment(config, data[begin : begin + SEGMENT_BYTES], skewed) for begin in begins]


def segment(config: DelayerConfig, data: bytes, skewed: bool = False) -> Segment:
    ranks, bound, mark = ranks_of(config), config.max_delay_passes, config.token_usage_low_watermark
    low = [(data[7] % ranks, mark), (data[7] % ranks, mark / 2)] if mark is not None else []
    beside = data[8 + MOST_RANKS : 8 + MOST_RANKS + ranks]
    return Segment(
        times=pick(data[0], (0, 1, 2, max(bound, 1), bound + 1, 3)),
        kind=pick(data[1], KINDS),
        advance=pick(data[2], ADVANCES),
        choice=pick(data[4], pick(data[3], POOLS)),
        voters=1 + data[5] % max(1, 2**ranks - 2),
        usage=pick(data[6], [NOBODY_LOW, NOBODY_LOW, *low]),
        shares=tuple(pick(byte, SHARES) for byte in data[8 : 8 + ranks]),
        skew=tuple(pick(byte, (0, -1, 1)) for byte in beside) if skewed else (),
    )


def spent(parts: list[Segment]) -> list[Segment]:
    """Let the free pass be taken first."""
    first = replace(parts[0], kind="all", times=1, choice=SLOTS_HOLD[0], usage=parts[-1].usage)
    return [first, *parts]


def timer_runs_out(parts: list[Segment]) -> list[Segment]:
    """The free pass, a delay that opens an episode, a queue held one time limit later, then slots held."""
    first = replace(parts[0], times=1)
    held = replace(first, choice=first.choice if first.choice in QUEUE_HOLDS else QUEUE_HOLDS[0], usage=NOBODY_LOW)
    opens = replace(held, kind="all" if first.kind == "all" else "mixed", advance=(0.0, 0), choice=QUEUE_HOLDS[0])
    halfway = [replace(held, kind="all", advance=(0.5, 0), skew=())] if parts[0].times > 2 else []
    late = replace(held, kind="all", advance=(1.0 - len(halfway) / 2, first.advance[1]))
    slots = replace(first, kind="all", advance=(0.0, 0), choice=SLOTS_HOLD[0])
    return [spent(parts)[0], opens, *halfway, late, slots, *parts[1:]]


def written(config: DelayerConfig, parts: list[Segment]) -> tuple[Pass, ...]:
    """The passes of these segments. Every rank's clock stands still within a segment and never runs backwards."""
    passes: list[Pass] = []
    base, clocks = 0.0, (0.0,) * ranks_of(config)
    for part in parts:
        limits, edge = part.advance
        if limits:
            base += limits * config.max_delay_ms
            clocks = tuple(round(base + by * EDGE_MS, 1) for by in part.skew or [edge] * len(clocks))
        passes += [at(clocks, reports) for reports in one_segment(config, part)] * part.times
    return tuple(passes[: max(MOST_PASSES, min(config.max_delay_passes + 4, 64))])


def at(clocks: tuple[float, ...], reports: Pass) -> Pass:
    return tuple(replace(report, now_ms=now) for report, now in zip(reports, clocks, strict=True))


def one_segment(config: DelayerConfig, part: Segment) -> list[Pass]:
    """The different passes of a segment: one, or two that alternate."""
    top, kind = largest(part.choice, config), part.kind
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

    def case(data: bytes) -> LastPassCase:
        drawn = config or config_of(data, waits=True)
        part, before, *_ = segments(drawn, data)
        history = pick(data[8], ((takes_free_pass(drawn),),) * 3 + ((),))
        if data[9] % 3 == 2:
            history += written(drawn, [replace(before, times=before.times or 1)])
        tops = pick(data[10], (two_sizes, two_queues))(drawn, part, data[11:])
        now = (history[-1][0].now_ms if history else 0.0) + part.advance[0] * drawn.max_delay_ms
        quiet = replace(part, usage=NOBODY_LOW)
        last, other_last = (at((now,) * ranks_of(drawn), spread(top, -1, quiet)) for top in tops)
        return LastPassCase(config=drawn, history=history, last=last, other_last=other_last)

    return st.binary(min_size=CASE_BYTES, max_size=CASE_BYTES).map(case)


def takes_free_pass(config: DelayerConfig) -> Pass:
    """All slots are taken: the slot condition holds, and the first such pass is let through."""
    report = RankReport(prefillable=True, running_batch=running_limit(config), max_prefill_bs=1)
    return (report,) * ranks_of(config)


def two_sizes(config: DelayerConfig, _: Segment, data: bytes) -> tuple[RankReport, RankReport]:
    """The slot condition is false for both sizes; the queue stands around what either size makes of the target."""
    limit, ratio = running_limit(config), config.queue_min_ratio or 0.5
    running = pick(data[0], (limit // 2, limit * 3 // 4, limit // 3, max(limit - 2, 0)))
    free, wanted = limit - running, int(running * ratio)
    one = min(pick(data[1], (1, 0, 2)), free)
    other = min(max(pick(data[2], (free, wanted, config.prefill_max_requests or 3)), one + 1), free)
    cap = min(wanted, config.prefill_max_requests or wanted)
    queue = max(pick(data[3], (one, cap - 1, cap, other, 0)), 0)
    top = RankReport(prefillable=True, running_batch=running, max_prefill_bs=one, waiting_queue_len=queue)
    return top, replace(top, max_prefill_bs=other)


def two_queues(config: DelayerConfig, part: Segment, data: bytes) -> tuple[RankReport, RankReport]:
    top = largest(part.choice, config)
    return top, replace(top, waiting_queue_len=top.waiting_queue_len + pick(data[0], (1, 2, 40)))


ATTEMPTS = (
    Attempt(admitted=1),
    Attempt(),
    Attempt(admitted=20),
    Attempt(queue=1, free_slots=4),
    Attempt(queue=9, free_slots=0),
    Attempt(queue=9, free_slots=4),
    Attempt(admitted=2),
)
TIMES = (0, 1, WINDOW, 2, WINDOW - 1, WINDOW + 1)


def attempts_cases() -> st.SearchStrategy[AttemptsCase]:
    """Bursts, small attempts around the length of the window, rejected ones and idle passes."""

    def case(data: bytes) -> AttemptsCase:
        runs = [(pick(data[i], ATTEMPTS),) * pick(data[i + 1], TIMES) for i in range(0, 2 * MOST_SEGMENTS, 2)]
        return AttemptsCase(attempts=sum(runs, ()))

    return st.binary(min_size=2 * MOST_SEGMENTS, max_size=2 * MOST_SEGMENTS).map(case)


def votes_cases() -> st.SearchStrategy[VotesCase]:
    """Ranks with and without a chunk in progress, with and without new requests."""
    rank = st.tuples(st.booleans(), st.integers(0, 2))
    return st.lists(rank, min_size=1, max_size=4).map(
        lambda ranks: VotesCase(mid_chunk=tuple(r[0] for r in ranks), waiting=tuple(r[1] for r in ranks))
    )
