"""Delayers that differ from the reference's and are right."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import Hardened, ReferenceAttempts, ReferenceDelayers
from cpbcg_ref.faults.model import variant


def delaying(key: str) -> Callable[[type], type]:
    """Register the hardened engine whose ranks are this class: not even advice is due."""

    def register(ranks: type) -> type:
        variant(key)(type(ranks.__name__, (Hardened,), {"__doc__": ranks.__doc__, "delayers": ranks}))
        return ranks

    return register


class Configured(ReferenceDelayers):
    """Runs the policy with some settings changed: those that only make it wait less."""

    def __init__(self, config: cases.DelayerConfig, library: Any, *, policy: str) -> None:
        super().__init__(config, library, policy=policy)
        self.config = replace(self.config, **self.instead())

    def instead(self) -> dict[str, Any]:
        return {}


@variant("hardened")
class HardenedPolicy(Hardened):
    """The hardened policy keeps every MUST and every SHOULD."""


@delaying("ignores-queue")
class IgnoresQueue(Configured):
    """Never waits for a longer queue: a delayer may wait less."""

    def instead(self) -> dict[str, Any]:
        return {"queue_min_ratio": None}


@delaying("half-the-time")
class HalfTheTime(Configured):
    """Its timers run out after half the limit: they bound a wait from above."""

    def instead(self) -> dict[str, Any]:
        return {"max_delay_ms": self.config.max_delay_ms / 2}


@delaying("half-the-queue")
class HalfTheQueue(Configured):
    """Waits for half the queue that it may wait for."""

    def instead(self) -> dict[str, Any]:
        ratio = self.config.queue_min_ratio
        return {"queue_min_ratio": ratio and ratio / 2}


@delaying("half-the-bound")
class HalfTheBound(Configured):
    """Gives up after half the bound, and does not call that the timeout which it is not."""

    def instead(self) -> dict[str, Any]:
        return {"max_delay_passes": self.config.max_delay_passes // 2}

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        decision = super().decide(table, state, report)
        early = "wait_success" if decision.wait_passes else "no_wait"
        return replace(decision, reason=early) if decision.reason == "wait_timeout" else decision


@delaying("watermark-where-it-decides")
class WatermarkWhereItDecides(ReferenceDelayers):
    """Says token_watermark only of a pass that would have been held, or have taken the free pass."""

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        without = super().decide([replace(row, below_watermark=False) for row in table], state, report)
        free = without.allow and without.state.free_pass_used == state.free_pass_used
        return without if free else super().decide(table, state, report)


@delaying("table-by-fullness")
class OtherOrder(ReferenceDelayers):
    """Its table lists the fullest rank first: a decision does not depend on the order of the rows."""

    def gathered(self, rows: list[Any]) -> list[list[Any]]:
        return [sorted(table, key=lambda row: -row.running_batch) for table in super().gathered(rows)]


@delaying("clock-in-seconds")
class ClockInSeconds(Configured):
    """Counts in seconds."""

    def instead(self) -> dict[str, Any]:
        return {"max_delay_ms": self.config.max_delay_ms / 1000}

    def step(self, reports: cases.Pass) -> Any:
        return super().step(tuple(replace(report, now_ms=report.now_ms / 1000) for report in reports))


class Seen(ReferenceAttempts):
    """Keeps every attempt and looks at the last 16 when it is asked."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.all: list[cases.Attempt] = []

    def step(self, attempt: cases.Attempt) -> int:
        self.all = [*self.all, attempt]
        sizes = [max(size.sizes) for one in self.all if (size := self.window.after(**asdict(one))).sizes]
        return max(sizes[-16:], default=1)


@variant("attempts-kept")
class AttemptsKept(Hardened):
    """Before the first attempt its size is 1: until then any number will do."""

    window = Seen
