"""A naive prefill delayer, written down from the specification, and copies of it with one thing wrong each.

Every rank decides on its own from the gathered rows, so that a wrong copy can let ranks part ways. Nothing here is
shared with the library's own delayer.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cpbcg_ref.answers import Verdict
from cpbcg_ref.cases import Attempt, DelayerConfig, Pass, RankReport
from cpbcg_ref.engines.contract import Contract


@dataclass
class Rank:
    """What one rank carries from pass to pass."""

    episode: bool = False
    delays: int = 0
    began: float = 0.0
    free_pass_used: bool = False


class Delayers:
    """The policy of the specification. Wrong copies override one method."""

    def __init__(self, config: DelayerConfig, ranks: int | None = None) -> None:
        self.config = config
        self.ranks = [Rank() for _ in range(ranks or config.dp_size)]

    def step(self, reports: Pass) -> list[Verdict]:
        timers = [self.timer(rank, report) for rank, report in zip(self.ranks, reports, strict=False)]
        return [self.decide(i, rank, reports, timers) for i, rank in enumerate(self.ranks[: len(reports)])]

    # what a wrong copy may get wrong -------------------------------------------------------------------------------

    def bound(self) -> int:
        return self.config.max_delay_passes

    def mixed_bound(self) -> int:
        return self.bound()

    def slot_bound(self) -> int:
        return self.bound()

    def timer(self, rank: Rank, report: RankReport) -> bool:
        return rank.episode and report.now_ms - rank.began >= self.config.max_delay_ms

    def expired(self, i: int, rank: Rank, reports: Pass, timers: list[bool]) -> bool:
        return any(timers)

    def low(self, report: RankReport) -> bool:
        mark = self.config.token_usage_low_watermark
        return report.prefillable and mark is not None and report.token_usage < mark

    def limit(self) -> int:
        most, replicas = self.config.max_running_requests, self.config.dp_size
        return most if self.config.enable_dp_attention else math.ceil(most / replicas)

    def slots(self, reports: Pass) -> bool:
        return self.limit() - max(r.running_batch for r in reports) < max(r.max_prefill_bs for r in reports)

    def capacity(self, reports: Pass) -> int:
        cap = self.config.prefill_max_requests
        return max(r.max_prefill_bs for r in reports) if cap is None else cap

    def wanted(self, reports: Pass) -> int:
        ratio = self.config.queue_min_ratio
        return 0 if ratio is None else int(max(r.running_batch for r in reports) * ratio)

    def queue(self, reports: Pass) -> bool:
        target = min(self.wanted(reports), self.capacity(reports))
        return target > 0 and max(r.waiting_queue_len for r in reports) < target

    def nobody(self, rank: Rank) -> None:
        self.close(rank)

    def success_wait(self, waited: int) -> int:
        return waited

    def timeout_wait(self, waited: int) -> int:
        return waited

    def low_wait(self, waited: int) -> int:
        return waited

    def spend(self, rank: Rank) -> None:
        rank.free_pass_used = True

    def low_release(self, rank: Rank) -> None:
        pass

    def idle_hold(self, reports: Pass) -> bool:
        return True

    # the table of the specification --------------------------------------------------------------------------------

    def decide(self, i: int, rank: Rank, reports: Pass, timers: list[bool]) -> Verdict:
        votes = [r.prefillable for r in reports]
        waited, was_open = rank.delays if rank.episode else 0, rank.episode
        if not any(votes):
            self.nobody(rank)
            return self.answer(rank, True, "", waited)
        if any(map(self.low, reports)):
            self.close(rank)
            self.low_release(rank)
            return self.answer(rank, True, "token_watermark", self.low_wait(waited))
        if self.idle_hold(reports):
            if not all(votes):
                return self.hold(rank, reports[i], self.mixed_bound())
            slots = self.slots(reports)
            if slots or (self.queue(reports) and not self.expired(i, rank, reports, timers)):
                if rank.free_pass_used:
                    return self.hold(rank, reports[i], self.slot_bound() if slots else self.bound())
                self.spend(rank)
        self.close(rank)
        return self.answer(rank, True, "wait_success" if was_open else "no_wait", self.success_wait(waited))

    def hold(self, rank: Rank, report: RankReport, bound: int) -> Verdict:
        waited = rank.delays if rank.episode else 0
        if waited >= bound - 1:
            self.close(rank)
            return self.answer(rank, True, "wait_timeout", self.timeout_wait(waited))
        if not rank.episode:
            rank.episode, rank.began, rank.delays = True, report.now_ms, 0
        rank.delays += 1
        return self.answer(rank, False, "delay", 0)

    def close(self, rank: Rank) -> None:
        rank.episode, rank.delays = False, 0

    def answer(self, rank: Rank, allow: bool, reason: str, wait: int) -> Verdict:
        return Verdict(
            allow=allow,
            reason=reason,
            wait_passes=wait,
            episode_open=rank.episode,
            delayed_passes=rank.delays,
            free_pass_used=rank.free_pass_used,
        )


class Hardened(Delayers):
    """Has none of the weaknesses that are reported at level SHOULD."""

    def nobody(self, rank: Rank) -> None:
        pass

    def idle_hold(self, reports: Pass) -> bool:
        return any(r.running_batch for r in reports)

    def capacity(self, reports: Pass) -> int:
        return min(super().capacity(reports), self.limit() - max(r.running_batch for r in reports))

    def slots(self, reports: Pass) -> bool:
        return any(self.limit() - r.running_batch < r.max_prefill_bs for r in reports)


# Wrong in one thing each. `finds` names the invariant that must find it. ------------------------------------------

WRONG: dict[str, tuple[str, type[Delayers]]] = {}


def finds(invariant_id: str):
    def register(group: type[Delayers]) -> type[Delayers]:
        WRONG[group.__name__] = (invariant_id, group)
        return group

    return register


@finds("delay.agree")
class LocalClock(Delayers):
    def expired(self, i, rank, reports, timers):
        return timers[i]


@finds("delay.agree")
class CountsOnlyOwnWaits(Delayers):
    """A rank that is not prefillable itself does not count the delay."""

    def hold(self, rank, report, bound):
        verdict = super().hold(rank, report, bound)
        if report.prefillable or verdict.allow:
            return verdict
        rank.delays -= 1
        return Verdict(**{**vars(verdict), "delayed_passes": rank.delays})


@finds("delay.bounded-passes")
class UnboundedAll(Delayers):
    def slot_bound(self):
        return 10**9


@finds("delay.bounded-passes")
class NoTimeoutInMixed(Delayers):
    def mixed_bound(self):
        return 10**9


@finds("delay.bounded-passes")
class KnobIgnored(Delayers):
    def bound(self):
        return 30


@finds("delay.bounded-passes")
class OneDelayTooMany(Delayers):
    def bound(self):
        return self.config.max_delay_passes + 1


@finds("delay.bounded-time")
class NoTimer(Delayers):
    def expired(self, i, rank, reports, timers):
        return False


@finds("delay.bounded-time")
class TimerStrictlyAbove(Delayers):
    def timer(self, rank, report):
        return rank.episode and report.now_ms - rank.began > self.config.max_delay_ms


@finds("delay.bounded-time")
class TimerRestartsWithEachDelay(Delayers):
    def hold(self, rank, report, bound):
        verdict = super().hold(rank, report, bound)
        rank.began = report.now_ms
        return verdict


@finds("delay.bounded-time")
class TimerNeedsTwoDelays(Delayers):
    def expired(self, i, rank, reports, timers):
        return any(timers) and rank.delays > 1


@finds("delay.justified")
class SlotsIncludeEquality(Delayers):
    def slots(self, reports):
        return self.limit() - max(r.running_batch for r in reports) <= max(r.max_prefill_bs for r in reports)


@finds("delay.justified")
class TargetRoundedUp(Delayers):
    def wanted(self, reports):
        return math.ceil(max(r.running_batch for r in reports) * (self.config.queue_min_ratio or 0))


@finds("delay.justified")
class QueueIncludesEquality(Delayers):
    def queue(self, reports):
        target = min(self.wanted(reports), self.capacity(reports))
        return target > 0 and max(r.waiting_queue_len for r in reports) <= target


@finds("delay.justified")
class ReplicaLimitRoundedDown(Delayers):
    def limit(self):
        most, replicas = self.config.max_running_requests, self.config.dp_size
        return most if self.config.enable_dp_attention else max(1, most // replicas)


@finds("delay.justified")
class HoldsWithNobody(Delayers):
    def decide(self, i, rank, reports, timers):
        if not any(r.prefillable for r in reports):
            return self.hold(rank, reports[i], self.bound())
        return super().decide(i, rank, reports, timers)


@finds("delay.target-capacity")
class CappedByObservedSize(Delayers):
    def capacity(self, reports):
        return max(r.max_prefill_bs for r in reports)


@finds("delay.target-capacity")
class NeverCappedByObservedSize(Delayers):
    def capacity(self, reports):
        return self.config.prefill_max_requests or 10**9


@finds("delay.watermark")
class WatermarkOnlyInMixed(Delayers):
    def decide(self, i, rank, reports, timers):
        if all(r.prefillable for r in reports):
            reports = tuple(RankReport(**{**vars(r), "token_usage": 1.0}) for r in reports)
        return super().decide(i, rank, reports, timers)


@finds("delay.watermark")
class WatermarkOfRankZero(Delayers):
    def decide(self, i, rank, reports, timers):
        rest = tuple(RankReport(**{**vars(r), "token_usage": 1.0}) for r in reports[1:])
        return super().decide(i, rank, (reports[0], *rest), timers)


@finds("delay.reason")
class ClearedWait(Delayers):
    def success_wait(self, waited):
        return 0


@finds("delay.reason")
class TimeoutCountsItself(Delayers):
    def timeout_wait(self, waited):
        return waited + 1


@finds("delay.reason")
class WatermarkForgetsWait(Delayers):
    def low_wait(self, waited):
        return 0


@finds("delay.skip-first")
class FreePassAgainAfterNobody(Delayers):
    def nobody(self, rank):
        super().nobody(rank)
        rank.free_pass_used = False


@finds("delay.skip-first")
class WatermarkSpendsFreePass(Delayers):
    def low_release(self, rank):
        rank.free_pass_used = True


@finds("delay.skip-first")
class MixedSpendsFreePass(Delayers):
    def hold(self, rank, report, bound):
        verdict = super().hold(rank, report, bound)
        if verdict.allow:
            rank.free_pass_used = True
        return Verdict(**{**vars(verdict), "free_pass_used": rank.free_pass_used})


@finds("delay.monotone")
class WaitsForShortQueue(Delayers):
    """Compares the wrong way round."""

    def queue(self, reports):
        target = min(self.wanted(reports), self.capacity(reports))
        return target > 0 and max(r.waiting_queue_len for r in reports) > target


@finds("delay.budget")
class EmptyPassesCount(Hardened):
    def nobody(self, rank):
        rank.episode, rank.delays = True, rank.delays + 1


# Engines -----------------------------------------------------------------------------------------------------------


@dataclass
class Window:
    """max_prefill_bs after each pass, by one of several rules."""

    rule: str
    sizes: tuple[int, ...] = ()
    level: float = 0.0

    def step(self, attempt: Attempt) -> int:
        rejected = max(1, min(attempt.queue, attempt.free_slots)) if attempt.queue else 0
        size = attempt.admitted or rejected
        if self.rule == "decays per pass":
            self.level = max(self.level * 0.998, attempt.admitted)
            return int(self.level)
        if self.rule == "lifetime maximum of admitted":
            self.level = max(self.level, attempt.admitted)
            return int(self.level)
        if self.rule == "no floor" and not attempt.admitted:
            size = min(attempt.queue, attempt.free_slots)
        if size or (self.rule == "idle passes age" or (self.rule == "no floor" and attempt.queue)):
            self.sizes = (*self.sizes, size)[-(17 if self.rule == "one too many" else 16) :]
        return max(self.sizes, default=0)


WRONG_WINDOWS = ("decays per pass", "lifetime maximum of admitted", "no floor", "idle passes age", "one too many")


class Toy:
    """An engine made of one delayer group and one rule for the window."""

    name, version, contract, roots = "toy", "0", Contract(), ()

    def __init__(self, group: type[Delayers] = Delayers, window: str = "last 16 attempts") -> None:
        self.group, self.window = group, window

    def start_delayers(self, config: DelayerConfig) -> Delayers:
        return self.group(config)

    def start_attempts(self) -> Window:
        return Window(self.window)


def trace(group: Delayers, passes: Iterable[Pass]) -> tuple[tuple[Verdict, ...], ...]:
    return tuple(tuple(group.step(reports)) for reports in passes)
