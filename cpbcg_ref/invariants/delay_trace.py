"""Walking a trace of the negotiation: what the delay.* checkers and their witnesses share."""

from collections.abc import Callable, Sequence
from typing import Any

from cpbcg_ref.answers import PassesSeen, Raised, Verdict
from cpbcg_ref.cases import DelayerConfig, Pass, PassesCase
from cpbcg_ref.invariants.model import Check, Invariant, Part, Witness
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step


def every_step(judge: Callable[[Step, DelayerConfig], str | None]) -> Check:
    """A check that judges each pass on its own; a rank that raised where a verdict is due is a violation."""

    def check(case: PassesCase, seen: PassesSeen, _: Any) -> str | None:
        for step in table.steps(case.passes, seen.passes):
            sentence = judge(step, case.config)
            if sentence:
                return f"pass {step.number}: {sentence}"
        return raised_at(seen.passes)

    return check


def some_step(met: Callable[[Step, DelayerConfig], bool]) -> Witness:
    """A witness that came up if it did at any pass."""
    return lambda case, seen: any(met(step, case.config) for step in table.steps(case.passes, seen.passes))


def on(
    family: str, check: Check, *, id: str, level: str, says: str, sources: str = "", **witnesses: Witness
) -> Invariant:
    """An invariant of one part; a witness is named by its keyword."""
    met = {name.replace("_", " "): witness for name, witness in witnesses.items()}
    part = Part(family=family, check=check, witnesses=met)
    return Invariant(id=id, level=level, statement=says, parts=(part,), sources=tuple(sources.split()))


def raised_at(passes: Sequence[tuple[Verdict | Raised, ...]]) -> str | None:
    """The first rank that raised instead of giving a verdict."""
    for number, verdicts in enumerate(passes, start=1):
        for rank, verdict in enumerate(verdicts):
            if isinstance(verdict, Raised):
                return f"pass {number}: rank {rank} raised {verdict}"
    return None


def delayed(step: Step) -> int | None:
    """The first rank that is delayed, or None."""
    return next((rank for rank, verdict in enumerate(step.verdicts) if not verdict.allow), None)


def bound_of(config: DelayerConfig) -> int:
    """Passes in which a prefillable rank must be allowed once."""
    return max(1, config.max_delay_passes)


def runs_of(flags: Sequence[bool], length: int) -> list[int]:
    """Where `length` consecutive true flags begin.

    >>> runs_of([True, True, True, False, True], 2)
    [0, 1]
    """
    return [i for i in range(len(flags) - length + 1) if all(flags[i : i + length])]


def statuses(case: PassesCase) -> list[str]:
    return [table.status(reports) for reports in case.passes]


def all_with(reports: Pass, config: DelayerConfig, *, slot: bool, queue: bool) -> bool:
    """Everybody is prefillable, nobody below the watermark, and the conditions hold as given (timers left out)."""
    return (
        table.status(reports) == "all"
        and not table.any_below(reports, config)
        and table.slot_condition(reports, config) == slot
        and table.queue_short(reports, config) == queue
    )
