"""Passes of the negotiation, aimed at the places where delayers have gone wrong.

A case is a few segments (runs of equal passes), written out pass by pass. The numbers of a pass come from its
deployment's thresholds: one below, on and one above. The largest running batch, size and queue may stand on different
ranks. Clocks advance by nothing, a part of the time limit or the limit: just short, exactly, just above.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cpbcg_ref.cases import Attempt, AttemptsCase, DelayerConfig, LastPassCase, Pass, PassesCase, RankReport, VotesCase
from cpbcg_ref.oracles.passes import WINDOW, queue_target, running_limit
from cpbcg_ref.strategies.choices import Pick, read_off

MOST_PASSES, MOST_SEGMENTS, MOST_RANKS = 24, 5, 8  # a long bound asks for more passes, up to 64
EDGE_MS = 0.1
# Size, running batch and queue of a pass, as places in the lists of `largest`: by where they tend to end up.
QUEUE_HOLDS = ((0, 1, 3), (3, 2), (1, 4))
SLOTS_HOLD = ((0, 1, 3), (1, 6), (4, 2, 1))
ON_EDGE = ((0, 1, 3), (3, 0, 2, 8), (2, 3, 1, 5))
ANYWHERE = (range(6), range(9), range(7))
SHARES = (0, 1, 2, 1, 2)  # of the largest number a rank has all, nothing, or one less
COUNTS = ("running_batch", "max_prefill_bs", "waiting_queue_len")
NOBODY_LOW = (-1, 1.0)
SIMPLEST = Pick(b"")
ALL, NONE = -1, 0  # voters
CONFIG_BYTES, SEGMENT_BYTES = 8, 17 + 4 * MOST_RANKS


@dataclass(frozen=True, kw_only=True)
class Segment:
    """`times` equal passes, or turns of passes that differ in who is prefillable."""

    times: int
    turn: tuple[int, ...]  # per pass, bit r: rank r is prefillable
    limits: float  # time limits between the segment before and this one
    beside: tuple[int, ...]  # per rank: its clock beside that, in EDGE_MS
    top: RankReport  # the largest size, running batch and queue
    holders: tuple[int, int, int]  # ranks that have all of each of `COUNTS`
    shares: tuple[tuple[int, int, int], ...]  # of the other ranks
    silent: tuple[bool, ...]  # per rank: does it report zeros where it is not prefillable, as callers in releases do
    usage: tuple[int, float]  # a rank and its token usage


def delayer_config(pick: Pick, *, waits: bool = False) -> DelayerConfig:
    """Bounds from 0, odd limits, ratios that truncate; with `waits` only those that let a queue wait several passes."""
    return DelayerConfig(
        dp_size=pick((1, 2, 3, 4, 2, 3, 4, 8)),
        max_delay_passes=pick((3, 4, 8) if waits else (1, 2, 3, 0, 4, 8)),
        max_running_requests=pick((8, 9, 21, 64, 1024) if waits else (8, 9, 1, 21, 64, 1024)),
        max_delay_ms=pick((500.0, 5000.0)),
        queue_min_ratio=pick((0.5, 1.0, 0.29) if waits else (0.5, None, 1.0, 0.29, 0.02)),
        prefill_max_requests=pick((None, 4, 128) if waits else (None, 4, 128, 1)),
        token_usage_low_watermark=pick((None, 0.8, 0.8)),
        enable_dp_attention=pick((True, True, False)),
    )


def segment(pick: Pick, config: DelayerConfig, *, skewed: bool = False) -> Segment:
    each, bound = range(config.dp_size if config.enable_dp_attention else 1), config.max_delay_passes
    some = 1 + pick(range(max(1, 2 ** len(each) - 2)))
    mark = config.token_usage_low_watermark or 1.0
    edge = pick((0, -1, 1, 0))
    own = [pick.part(4) for _ in range(MOST_RANKS)][: len(each)]  # choices of each rank
    return Segment(
        times=pick((0, 1, 2, max(bound, 1), bound + 1, 3)),
        turn=pick([(ALL,)] * 3 + [(some,)] * 2 + [(NONE,), (some, NONE)]),
        limits=pick((0.0, 1.0, 1.0, 1.0, 0.25)),
        top=largest(pick, pick((QUEUE_HOLDS, SLOTS_HOLD, ON_EDGE, QUEUE_HOLDS, SLOTS_HOLD, ON_EDGE, ANYWHERE)), config),
        usage=pick((NOBODY_LOW, NOBODY_LOW, (pick(each), mark), (pick(each), mark / 2))),
        holders=(pick(each), pick(each), pick(each)),
        beside=tuple(edge if rank % 2 or not skewed else 0 for rank in each),
        shares=tuple((rank(SHARES), rank(SHARES), rank(SHARES)) for rank in own),
        silent=tuple(rank((True, True, True, False)) for rank in own),
    )


def largest(pick: Pick, places: Sequence[Sequence[int]], config: DelayerConfig) -> RankReport:
    """The largest size, running batch and queue of a pass, at a threshold of this deployment."""
    at_size, at_running, at_queue = map(pick, places)
    limit, cap = running_limit(config), config.prefill_max_requests or 5
    size = min((1, 2, 0, cap, cap + 1, limit)[at_size], limit)
    first = int(1 / (config.queue_min_ratio or 0.5))  # about the smallest running batch with a target
    running = (limit - size, limit - size + 1, limit - size - 1, limit // 2, 1, 0, limit, first - 1, first)[at_running]
    top = RankReport(prefillable=True, running_batch=min(max(running, 0), limit), max_prefill_bs=size)
    target = queue_target((top,), config)
    queue = (1, target - 1, target, target + 1, 0, limit - top.running_batch, size)[at_queue]
    return replace(top, waiting_queue_len=max(queue, 0))


def slots_held(like: Segment, config: DelayerConfig) -> Segment:
    """All are prefillable and all slots taken: the first such pass is let through."""
    return replace(like, turn=(ALL,), times=1, limits=0.0, top=largest(SIMPLEST, SLOTS_HOLD, config))


def timer_runs_out(first: Segment, queue_held: RankReport, config: DelayerConfig) -> list[Segment]:
    """A delay that opens an episode, a queue held until one time limit later, then maybe slots held."""
    held = replace(first, turn=(ALL,), times=1, limits=1.0, top=queue_held, usage=NOBODY_LOW)
    opens = replace(held, turn=(first.turn[0] or 1,), limits=0.0, top=largest(SIMPLEST, QUEUE_HOLDS, config))
    halves = [replace(held, limits=0.5, beside=(0,) * len(held.beside)), replace(held, limits=0.5)]
    end = [slots_held(first, config)] if first.times > 1 else []
    return [opens, *(halves if first.times > 2 else [held]), *end]


def written(parts: list[Segment], config: DelayerConfig) -> list[Pass]:
    """The passes of these segments. Every rank's clock stands still within a segment and never runs backwards."""
    passes: list[Pass] = []
    base, clocks = 0.0, [0.0] * len(parts[0].beside)
    for part in parts:
        if part.limits:
            base += part.limits * config.max_delay_ms
            clocks = [round(base + by * EDGE_MS, 1) for by in part.beside]
        turn = [tuple(report(part, rank, voters, now) for rank, now in enumerate(clocks)) for voters in part.turn]
        passes += turn * part.times
    return passes


def report(part: Segment, rank: int, voters: int, now_ms: float) -> RankReport:
    vote, counts = bool(voters >> rank & 1), {}
    if vote or not part.silent[rank]:
        for name, holder, share in zip(COUNTS, part.holders, part.shares[rank], strict=True):
            most = getattr(part.top, name)
            counts[name] = most if rank == holder else (most, 0, max(most - 1, 0))[share]
    usage = part.usage[1] if rank == part.usage[0] else 1.0
    return RankReport(prefillable=vote, token_usage=usage, now_ms=now_ms, **counts)


def passes_case(pick: Pick, *, skewed: bool = False, config: DelayerConfig | None = None) -> PassesCase:
    """Up to 24 passes of 1 to 8 ranks, more if the bound is longer; equal clocks unless `skewed`.

    One case in three (in two, if skewed) starts with the free pass, another goes on until a timer runs out.
    """
    spends, waits = pick(((True, False), (True, True)) if skewed else ((False, False), (True, False), (True, True)))
    config = config or delayer_config(pick, waits=waits)
    queue_held = largest(pick.part(3), QUEUE_HOLDS, config)
    parts = [segment(pick.part(SEGMENT_BYTES), config, skewed=skewed) for _ in range(MOST_SEGMENTS)]
    parts = [part for part in parts if part.times] or [replace(parts[0], times=1)]
    if waits:
        parts[:1] = timer_runs_out(parts[0], queue_held, config)
    if spends:
        parts.insert(0, slots_held(parts[-1], config))
    most = max(MOST_PASSES, min(config.max_delay_passes + 4, 64))
    return PassesCase(config=config, passes=tuple(written(parts, config)[:most]))


def last_pass_case(pick: Pick, *, config: DelayerConfig | None = None) -> LastPassCase:
    """Pairs of last passes in status `all` that differ in `max_prefill_bs`, or in the queues, of some ranks."""
    config = config or delayer_config(pick, waits=True)
    before, last = (segment(pick.part(SEGMENT_BYTES), config) for _ in range(2))
    last = replace(last, turn=(ALL,), times=1, usage=NOBODY_LOW)
    free_pass = replace(slots_held(last, config), times=pick((1, 1, 1, 0)))
    parts = [free_pass, replace(before, times=pick((0, 0, before.times or 1)))]
    longer = replace(last.top, waiting_queue_len=last.top.waiting_queue_len + pick((1, 2, 40)))
    one, other = pick(((last.top, longer), two_sizes(pick, config)))
    *history, last_pass = written([*parts, replace(last, top=one)], config)
    other_last = written([*parts, replace(last, top=other)], config)[-1]
    return LastPassCase(config=config, history=tuple(history), last=last_pass, other_last=other_last)


def two_sizes(pick: Pick, config: DelayerConfig) -> tuple[RankReport, RankReport]:
    """The slot condition is false for both sizes; the queue stands around what either size makes of the target."""
    limit, ratio = running_limit(config), config.queue_min_ratio or 0.5
    running = pick((limit // 2, limit * 3 // 4, limit // 3, max(limit - 2, 0)))
    free, wanted = limit - running, int(running * ratio)
    one = min(pick((1, 0, 2)), free)
    other = min(max(pick((free, wanted, config.prefill_max_requests or 3)), one + 1), free)
    cap = min(wanted, config.prefill_max_requests or wanted)
    queue = max(pick((one, cap - 1, cap, other, 0)), 0)
    top = RankReport(prefillable=True, running_batch=running, max_prefill_bs=one, waiting_queue_len=queue)
    return top, replace(top, max_prefill_bs=other)


def attempts_case(pick: Pick) -> AttemptsCase:
    """Bursts, small attempts around the length of the window, rejected ones and idle passes."""
    ran = [Attempt(admitted=admitted) for admitted in (1, 0, 20, 2)]
    rejected = [Attempt(queue=queue, free_slots=free) for queue, free in ((1, 4), (9, 0), (9, 4))]
    runs = [(pick(ran + rejected),) * pick((0, 1, WINDOW, 2, WINDOW - 1, WINDOW + 1)) for _ in range(5)]
    return AttemptsCase(attempts=sum(runs, ()))


def votes_case(pick: Pick) -> VotesCase:
    """Ranks with and without a chunk in progress, with and without new requests."""
    ranks = range(pick((1, 2, 3, 4)))
    return VotesCase(mid_chunk=tuple(pick((True, False)) for _ in ranks), waiting=tuple(pick((0, 1, 2)) for _ in ranks))


delayer_configs = read_off(CONFIG_BYTES, delayer_config)
passes_cases = read_off(4 + CONFIG_BYTES + MOST_SEGMENTS * SEGMENT_BYTES, passes_case)
last_pass_cases = read_off(CONFIG_BYTES + 2 * SEGMENT_BYTES + 10, last_pass_case)
attempts_cases = read_off(10, attempts_case)
votes_cases = read_off(9, votes_case)
