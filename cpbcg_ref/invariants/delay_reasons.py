"""The delay.* invariants on why a rank is held or let go: the conditions, what they compare, what is reported."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

from cpbcg_ref.answers import AttemptsSeen, LastPassSeen, PassesSeen, Raised, Verdict
from cpbcg_ref.cases import AttemptsCase, DelayerConfig, LastPassCase, Pass, PassesCase
from cpbcg_ref.invariants.delay_trace import all_with, delays, every_step, passes, raised_at, some_step
from cpbcg_ref.invariants.model import Judge, Sentences, invariant
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step

REASONS = ("", "no_wait", "wait_success", "wait_timeout", "token_watermark", "delay")


def only_queue(step: Step, config: DelayerConfig) -> bool:
    return all_with(step.reports, config, slot=False, queue=True)


def target_truncated_to_0(step: Step, config: DelayerConfig) -> bool:
    """Not truncated it would be above the queue of 0, and nothing else could hold the pass."""
    product = table.max_running(step.reports) * (config.queue_min_ratio or 0)
    empty = table.max_waiting(step.reports) == 0
    return 0 < product < 1 and empty and all_with(step.reports, config, slot=False, queue=False)


def may_wait(reports: Pass, config: DelayerConfig) -> bool:
    """By the wider cap of the target: which cap is right is for delay.target-capacity."""
    return table.slot_condition(reports, config) or table.queue_may_be_short(reports, config)


@delays("delay.justified", only_queue, target_truncated_to_0, sources="35191")
def has_a_reason(step: Step, config: DelayerConfig) -> Sentences:
    """A delay implies mixed status, or the slot or the queue condition."""
    reports = step.reports
    if table.status(reports) == "none":
        yield "although no rank is prefillable"
    if table.status(reports) == "all" and not may_wait(reports, config):
        slots = f"{table.free_slots(reports, config)} free slots for size {table.max_size(reports)}"
        yield f"at {slots}, waiting {table.max_waiting(reports)} of target {table.queue_target(reports, config)}"


def both(case: LastPassCase) -> tuple[Pass, Pass]:
    return case.last, case.other_last


def differ_in(name: str, case: LastPassCase) -> bool:
    """Do the two last passes differ in this field of the reports, and in nothing else."""
    ranks = list(zip(*both(case), strict=True))
    return {field for a, b in ranks for field in vars(a) if getattr(a, field) != getattr(b, field)} == {name}


def last_passes(judge: Callable[[LastPassCase, Any], Sentences]) -> Judge:
    """Judges two last passes; a rank that raised where a verdict is due is a violation."""

    def check(case: LastPassCase, seen: LastPassSeen, _: Any) -> Sentences:
        refused = [*raised_at((*seen.history, seen.last)), *raised_at((*seen.history, seen.other_last))]
        yield from refused or judge(case, seen)

    return check


pairs = partial(invariant, family="last-pass", each=last_passes)


def the_configured_cap_decides(case: LastPassCase, seen: LastPassSeen) -> bool:
    """The queue is short of the target, but would not be if one of the observed sizes were the cap."""
    config, different = case.config, differ_in("max_prefill_bs", case)
    observed = [table.queue_short(p, config, capacity=table.max_size(p)) for p in both(case)]
    held = all(all_with(p, config, slot=False, queue=True) for p in both(case))
    return config.prefill_max_requests is not None and different and held and not all(observed)


def the_observed_maximum_decides(case: LastPassCase, seen: LastPassSeen) -> bool:
    """No cap is configured, and only the observed size keeps the target from exceeding the queue."""
    config, enough = case.config, [p for p in both(case) if all_with(p, case.config, slot=False, queue=False)]
    kept = any(table.queue_short(p, config, capacity=table.max_running(p)) for p in enough)
    return config.prefill_max_requests is None and kept


@pairs("delay.target-capacity", the_configured_cap_decides, the_observed_maximum_decides, sources="35191")
def waits_for_its_cap(case: LastPassCase, seen: Any) -> Sentences:
    """With prefill_max_requests set, the queue verdict does not depend on max_prefill_bs (judged by changing it while
    the slot condition stays the same); unset, the target is capped by the observed maximum."""
    config, cap, verdicts = case.config, case.config.prefill_max_requests, (seen.last, seen.other_last)
    if any(table.status(p) != "all" or table.slot_condition(p, config) for p in both(case)):
        return
    size, other_size = (table.max_size(reports) for reports in both(case))
    for one, other in zip(*verdicts, strict=True):
        moved = differ_in("max_prefill_bs", case) and (one.allow, one.reason) != (other.allow, other.reason)
        if cap is not None and moved:
            yield f"{one.reason} at max_prefill_bs {size}, {other.reason} at {other_size}, prefill_max_requests {cap}"
    for reports, said in zip(both(case), verdicts, strict=True):
        size, waiting = table.max_size(reports), table.max_waiting(reports)
        delayed = waiting >= size and not all(verdict.allow for verdict in said)
        if cap is None and delayed:
            yield f"delayed with {waiting} waiting although the target is capped by max_prefill_bs {size}"


def a_burst_over_16_attempts_ago(case: AttemptsCase, seen: AttemptsSeen) -> bool:
    sizes = [size for size in map(table.attempt_size, case.attempts) if size]
    return max(sizes, default=0) > max(sizes[-table.WINDOW :], default=0)


def rejected_without_free_slots(case: AttemptsCase, seen: AttemptsSeen) -> bool:
    return any(a.queue > 0 and a.admitted == 0 and a.free_slots == 0 for a in case.attempts)


attempts = partial(invariant, family="attempts")


@attempts("delay.recent-size", a_burst_over_16_attempts_ago, rejected_without_free_slots, sources="34284")
def remembers_recent(case: AttemptsCase, seen: AttemptsSeen, _: Any) -> Sentences:
    """max_prefill_bs forgets an old burst, never falls below 1 after an attempt, and does not age in idle passes."""
    for number, answer in enumerate(seen.max_prefill_bs, start=1):
        sizes, attempt = table.recent_sizes(case.attempts[:number]), table.attempt_size(case.attempts[number - 1])
        if isinstance(answer, Raised):
            yield f"pass {number}: raised {answer}"
        elif sizes and answer != max(sizes):  # before the first attempt any number will do
            after = f"an attempt of {attempt}" if attempt else "an idle pass"
            right = f"{max(sizes)}, the largest of the last {len(sizes)} attempts"
            yield f"pass {number}: max_prefill_bs is {answer} after {after}, not {right}"


def usage_equal_to_the_watermark(step: Step, config: DelayerConfig) -> bool:
    return any(r.prefillable and r.token_usage == config.token_usage_low_watermark for r in step.reports)


def below_the_watermark_with_a_reason_to_wait(step: Step, config: DelayerConfig) -> bool:
    reason = table.status(step.reports) == "mixed" or table.slot_condition(step.reports, config)
    return table.any_below(step.reports, config) and reason


@passes("delay.watermark", usage_equal_to_the_watermark, below_the_watermark_with_a_reason_to_wait)
def let_go_below_watermark(step: Step, config: DelayerConfig) -> Sentences:
    """No delay while a prefillable rank is below the watermark (equality is not below)."""
    mark = config.token_usage_low_watermark
    low = [rank for rank, report in enumerate(step.reports) if table.below_watermark(report, config)]
    for rank, verdict in enumerate(step.verdicts):
        if low and not verdict.allow:
            usage = f"rank {low[0]} uses {step.reports[low[0]].token_usage} of its tokens"
            yield f"rank {rank} is delayed although {usage}, below the watermark {mark}"
        if verdict.reason == "token_watermark" and not low:
            usages = ", ".join(str(report.token_usage) for report in step.reports)
            yield f"rank {rank} says token_watermark, no prefillable rank is below {mark} (usage {usages})"


def a_wait_that_nothing_keeps_up(step: Step, config: DelayerConfig) -> bool:
    """It ends in success now."""
    return None not in step.started and all_with(step.reports, config, slot=False, queue=False)


def a_wait_ends_and_another_pass_is_released(case: PassesCase, seen: PassesSeen) -> bool:
    said = [[v.reason for v in step.verdicts if v.allow] for step in table.steps(case.passes, seen.passes)]
    ends = next((i for i, reasons in enumerate(said) if {"wait_success", "wait_timeout"} & set(reasons)), len(said))
    return any(map(any, said[ends + 1 :]))


@invariant(
    "delay.reason",
    a_wait_that_nothing_keeps_up,
    family="passes",
    some=some_step,
    sources="25949 25975",
    a_wait_ends_and_another_pass_is_released=a_wait_ends_and_another_pass_is_released,
)
def reason_fits(case: PassesCase, seen: PassesSeen, contract: Any) -> Sentences:
    """`delay` if and only if not allowed; reported wait in passes: `no_wait` 0, `wait_success` at least 1,
    `wait_timeout` max(bound - 1, 0), `token_watermark` the count so far, never more than there were delays since the
    last release with a reason; `""` only in status `none`.
    """
    yield from every_step(fits_its_pass)(case, seen, contract)
    for rank in range(len(case.passes[0])):
        yield from waits_told_twice(table.steps(case.passes, seen.passes), rank)


def waits_told_twice(trace: Iterable[Step], rank: int) -> Sentences:
    delays = 0
    for step in trace:
        verdict = step.verdicts[rank]
        delays += not verdict.allow
        if verdict.allow and verdict.wait_passes > delays:
            said = f"rank {rank} says {verdict.reason} after {verdict.wait_passes} passes"
            yield f"pass {step.number}: {said}, it was delayed in {delays} since its last release"
        if verdict.allow and verdict.reason:
            delays = 0


def fits_its_pass(step: Step, config: DelayerConfig) -> Sentences:
    status = table.status(step.reports)
    for rank, (verdict, before) in enumerate(zip(step.verdicts, step.before, strict=True)):
        so_far = before.delayed_passes if before.episode_open else 0
        # An engine that has overrun its bound may say by how much: the overrun is for delay.bounded-passes.
        due = {"no_wait": 0, "token_watermark": so_far, "wait_timeout": max(config.max_delay_passes - 1, so_far)}
        waited = f"rank {rank} reports {verdict.reason} after {verdict.wait_passes} passes"
        if verdict.reason not in REASONS:
            yield f"rank {rank} gives the unknown reason {verdict.reason!r}"
        if (verdict.reason == "delay") == verdict.allow:
            yield f"rank {rank} says {verdict.reason!r} and {'allows' if verdict.allow else 'does not allow'}"
        if verdict.reason == "" and status != "none":
            yield f"rank {rank} gives no reason in status {status}"
        if verdict.wait_passes != due.get(verdict.reason, verdict.wait_passes):
            yield f"{waited}, not {due[verdict.reason]} (bound {config.max_delay_passes})"
        if verdict.reason == "wait_success" and verdict.wait_passes < 1:
            yield f"{waited}: it waited at least 1"


def free_pass_used(verdicts: Sequence[Verdict]) -> list[bool]:
    return [verdict.free_pass_used for verdict in verdicts]


def free_pass_taken(step: Step, config: DelayerConfig) -> bool:
    return all(free_pass_used(step.verdicts)) and not any(free_pass_used(step.before))


def the_watermark_released_what_the_free_pass_would_have(step: Step, config: DelayerConfig) -> bool:
    low = table.status(step.reports) == "all" and table.any_below(step.reports, config)
    return low and table.slot_condition(step.reports, config) and not any(free_pass_used(step.before))


@passes("delay.skip-first", free_pass_taken, the_watermark_released_what_the_free_pass_would_have)
def free_pass_taken_once(step: Step, config: DelayerConfig) -> Sentences:
    """The free pass is taken at most once, on the same pass on every rank; a watermark or mixed release does not
    consume it."""
    flags, before = free_pass_used(step.verdicts), free_pass_used(step.before)
    if any(was and not now for was, now in zip(before, flags, strict=True)):
        yield f"the free pass was used and is unused again: {before} then {flags}"
    if flags == before:
        return
    if len(set(flags)) > 1:
        yield f"the free pass is taken on some ranks only: {flags}"
    if table.status(step.reports) != "all":
        yield f"a pass of status {table.status(step.reports)} used up the free pass"
    if table.any_below(step.reports, config):
        yield "a release by the watermark used up the free pass"
    if not may_wait(step.reports, config):
        yield "the free pass was used up although there was no reason to wait"


def no_longer(one: Pass, other: Pass) -> bool:
    return all(a.waiting_queue_len <= b.waiting_queue_len for a, b in zip(one, other, strict=True))


def the_length_of_the_queue_decides(case: LastPassCase, seen: LastPassSeen) -> bool:
    longer = no_longer(case.last, case.other_last) or no_longer(case.other_last, case.last)
    short = {all_with(p, case.config, slot=False, queue=True) for p in both(case)}
    return differ_in("waiting_queue_len", case) and longer and len(short) == 2


@pairs("delay.monotone", the_length_of_the_queue_decides)
def longer_queue_not_worse(case: LastPassCase, seen: Any) -> Sentences:
    """For one decision (same state, same rest of the table) a longer queue never turns allow into delay."""
    comparable = differ_in("waiting_queue_len", case)
    for (short, before), (long, after) in permutations(((case.last, seen.last), (case.other_last, seen.other_last))):
        for rank, (one, other) in enumerate(zip(before, after, strict=True)):
            if comparable and no_longer(short, long) and one.allow and not other.allow:
                queues = " -> ".join(str([report.waiting_queue_len for report in p]) for p in (short, long))
                yield f"queues {queues} turned {one.reason} into {other.reason} on rank {rank}"
