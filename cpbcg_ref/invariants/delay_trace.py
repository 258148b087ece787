"""How a trace of the negotiation is walked, and delay.agree, delay.bounded-*: alike on all ranks, and not for too long.

No checker replays the state machine: a better policy (one that waits less, or elsewhere) satisfies them too.
In sentences passes count from 1 and ranks from 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cpbcg_ref.answers import PassesSeen, Raised, Verdict
from cpbcg_ref.cases import DelayerConfig, Pass, PassesCase
from cpbcg_ref.invariants.model import Judge, Sentences, Witness, invariant
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step

OfStep = Callable[[Step, DelayerConfig], Sentences]


def every_step(judge: OfStep) -> Judge:
    """Judges each pass on its own; a rank that raised where a verdict is due is a violation."""

    def check(case: PassesCase, seen: PassesSeen, _: Any) -> Sentences:
        for step in table.steps(case.passes, seen.passes):
            yield from (f"pass {step.number}: {sentence}" for sentence in judge(step, case.config))
        yield from raised_at(seen.passes)

    return check


def every_delay(judge: OfStep) -> Judge:
    """Judges each pass in which a rank is delayed: what speaks against that."""

    def of_step(step: Step, config: DelayerConfig) -> Sentences:
        delayed = [rank for rank, verdict in enumerate(step.verdicts) if not verdict.allow]
        for against in judge(step, config) if delayed else ():
            yield f"rank {delayed[0]} is delayed {against}"

    return every_step(of_step)


def some_step(met: Callable[[Step, DelayerConfig], bool]) -> Witness:
    """Came up at any pass."""
    return lambda case, seen: any(met(step, case.config) for step in table.steps(case.passes, seen.passes))


passes = partial(invariant, family="passes", each=every_step, some=some_step)
delays = partial(passes, each=every_delay)


def raised_at(passes: Sequence[tuple[Verdict | Raised, ...]]) -> Sentences:
    """The ranks that raised instead of giving a verdict."""
    for number, verdicts in enumerate(passes, start=1):
        for rank, verdict in enumerate(verdicts):
            if isinstance(verdict, Raised):
                yield f"pass {number}: rank {rank} raised {verdict}"


def bound_of(config: DelayerConfig) -> int:
    """Passes in which a prefillable rank must be allowed once."""
    return max(1, config.max_delay_passes)


def runs_of(flags: Sequence[bool], length: int) -> list[int]:
    """Where `length` consecutive true flags begin."""
    return [i for i in range(len(flags) - length + 1) if all(flags[i : i + length])]


def all_with(reports: Pass, config: DelayerConfig, *, slot: bool, queue: bool) -> bool:
    """Everybody is prefillable, nobody below the watermark, and the conditions hold as given (timers left out)."""
    conditions = (table.slot_condition(reports, config), table.queue_short(reports, config))
    return table.status(reports) == "all" and not table.any_below(reports, config) and conditions == (slot, queue)


def clocks_on_both_sides_of_the_limit(step: Step, config: DelayerConfig) -> bool:
    opened, timers = None not in step.started, set(step.timers(config.max_delay_ms))
    return opened and timers == {True, False} and all_with(step.reports, config, slot=False, queue=True)


@passes("delay.agree", clocks_on_both_sides_of_the_limit, family="skewed-passes", sources="30521 32454")
def same_on_every_rank(step: Step, config: DelayerConfig) -> Sentences:
    """Same verdict, reason, wait in passes and next state (episode open, its delay count, free pass used) on every
    rank, under any clock skew; start times and seconds are local."""
    first = step.verdicts[0]
    for rank, other in enumerate(step.verdicts):
        if other.reason != first.reason:
            clocks = f"clocks {step.reports[0].now_ms:.10g}, {step.reports[rank].now_ms:.10g}"
            said = f"rank 0 {first.reason or 'allow'}, rank {rank} {other.reason or 'allow'}"
            yield f"{said} ({clocks}, limit {config.max_delay_ms:.10g} ms)"
        for (name, mine), theirs in zip(vars(first).items(), vars(other).values(), strict=True):
            if mine != theirs:
                yield f"{name} is {mine} on rank 0 and {theirs} on rank {rank} (both say {first.reason!r})"


def slots_short_for_a_whole_bound(case: PassesCase, seen: PassesSeen) -> bool:
    bound = bound_of(case.config)
    held = [table.status(reports) == "all" and table.slot_condition(reports, case.config) for reports in case.passes]
    return bound > 1 and bool(runs_of(held, bound))


def bound_0_or_1(case: PassesCase, seen: PassesSeen) -> bool:
    return case.config.max_delay_passes < 2


def all_three_kinds_of_status(case: PassesCase, seen: PassesSeen) -> bool:
    return {table.status(reports) for reports in case.passes} == {"all", "mixed", "none"}


HELD_FOREVER = "32880 18309 vllm-project/tpu-inference#2577 TensorRT-LLM#17379"


@invariant(
    "delay.bounded-passes",
    slots_short_for_a_whole_bound,
    bound_0_or_1,
    all_three_kinds_of_status,
    family="passes",
    sources=HELD_FOREVER,
)
def allowed_within_bound(case: PassesCase, seen: PassesSeen, _: Any) -> Sentences:
    """A rank prefillable in max(1, max_delay_passes) consecutive passes is allowed at least once."""
    trace, bound = list(table.steps(case.passes, seen.passes)), bound_of(case.config)
    for rank in range(len(case.passes[0])):
        held = [step.reports[rank].prefillable and not step.verdicts[rank].allow for step in trace]
        for begin in runs_of(held, bound):
            who = f"rank {rank} was prefillable in {bound} consecutive passes"
            yield f"pass {begin + bound}: {who} (bound {case.config.max_delay_passes}) and never allowed"
    yield from raised_at(seen.passes)


def a_clock_equal_to_the_limit(step: Step, config: DelayerConfig) -> bool:
    """It has run out, and nothing but the queue condition may hold the pass."""
    elapsed = {r.now_ms - start for r, start in zip(step.reports, step.started, strict=True) if start is not None}
    released = any(step.timers(config.max_delay_ms)) and all_with(step.reports, config, slot=False, queue=True)
    return released and config.max_delay_ms in elapsed


@delays("delay.bounded-time", a_clock_equal_to_the_limit, sources="32454")
def released_by_time(step: Step, config: DelayerConfig) -> Sentences:
    """In status all with the slot condition false, no pass is delayed when a rank's timer had run out before the
    gather; mixed and slot delays are bounded by passes only."""
    limit, free = config.max_delay_ms, not table.slot_condition(step.reports, config)
    for rank, out in enumerate(step.timers(limit)):
        if out and free and table.status(step.reports) == "all":
            times = f"{step.started[rank]:.10g} to {step.reports[rank].now_ms:.10g} ms, limit {limit:.10g} ms"
            yield f"although rank {rank}'s timer had run out ({times})"
