"""Checkers of the delay.* invariants of level MUST on a sequence of passes, each followed by its witnesses.

No checker replays the state machine: a better policy (one that waits less, or elsewhere) satisfies them too.
In sentences passes count from 1 and ranks from 0.
"""

from itertools import pairwise
from typing import Any

from cpbcg_ref.answers import PassesSeen, Verdict
from cpbcg_ref.cases import DelayerConfig, PassesCase
from cpbcg_ref.invariants.delay_trace import all_with, bound_of, delayed, raised_at, runs_of, statuses
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step

SHARED = ("allow", "wait_passes", "episode_open", "delayed_passes", "free_pass_used")
REASONS = ("", "no_wait", "wait_success", "wait_timeout", "token_watermark", "delay")


def same_on_every_rank(step: Step, config: DelayerConfig) -> str | None:
    """delay.agree: verdict, reason, wait and next state; start times and seconds are local."""
    first = step.verdicts[0]
    for rank, other in enumerate(step.verdicts):
        if other.reason != first.reason:
            clocks = f"clocks {step.reports[0].now_ms:.10g}, {step.reports[rank].now_ms:.10g}"
            said = f"rank 0 {first.reason or 'allow'}, rank {rank} {other.reason or 'allow'}"
            return f"{said} ({clocks}, limit {config.max_delay_ms:.10g} ms)"
        for name in SHARED:
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {mine} on rank 0 and {theirs} on rank {rank} (both say {first.reason!r})"
    return None


def clocks_on_both_sides(step: Step, config: DelayerConfig) -> bool:
    timers = step.timers(config.max_delay_ms)
    opened = None not in step.started
    return opened and any(timers) and not all(timers) and all_with(step.reports, config, slot=False, queue=True)


def allowed_within_bound(case: PassesCase, seen: PassesSeen, _: Any) -> str | None:
    """delay.bounded-passes."""
    trace, bound = list(table.steps(case.passes, seen.passes)), bound_of(case.config)
    for rank in range(len(trace[0].reports) if trace else 0):
        held = [step.reports[rank].prefillable and not step.verdicts[rank].allow for step in trace]
        for begin in runs_of(held, bound):
            who = f"rank {rank} was prefillable in {bound} consecutive passes"
            return f"pass {begin + bound}: {who} (bound {case.config.max_delay_passes}) and never allowed"
    return raised_at(seen.passes)


def longer_than_bound(case: PassesCase, _: PassesSeen) -> bool:
    """A rank is prefillable for more passes than the bound, which is at least 2."""
    bound = bound_of(case.config)
    ranks = [[report.prefillable for report in one_rank] for one_rank in zip(*case.passes, strict=True)]
    return bound > 1 and any(runs_of(flags, bound + 1) for flags in ranks)


def slots_short_for_a_bound(case: PassesCase, _: PassesSeen) -> bool:
    held = [table.status(reports) == "all" and table.slot_condition(reports, case.config) for reports in case.passes]
    return bool(runs_of(held, bound_of(case.config)))


def released_by_time(step: Step, config: DelayerConfig) -> str | None:
    """delay.bounded-time: mixed and slot delays are bounded by passes only."""
    rank, limit = delayed(step), config.max_delay_ms
    if rank is None or table.status(step.reports) != "all" or table.slot_condition(step.reports, config):
        return None
    for owner, out in enumerate(step.timers(limit)):
        if out:
            times = f"{step.started[owner]:.10g} to {step.reports[owner].now_ms:.10g} ms, limit {limit:.10g} ms"
            return f"rank {rank} is delayed although rank {owner}'s timer had run out ({times})"
    return None


def time_decides(step: Step, config: DelayerConfig) -> bool:
    return any(step.timers(config.max_delay_ms)) and all_with(step.reports, config, slot=False, queue=True)


def clock_equals_limit(step: Step, config: DelayerConfig) -> bool:
    elapsed = {r.now_ms - start for r, start in zip(step.reports, step.started, strict=True) if start is not None}
    return config.max_delay_ms in elapsed and time_decides(step, config)


def has_a_reason(step: Step, config: DelayerConfig) -> str | None:
    """delay.justified. The queue is given the wider cap: which cap is right is delay.target-capacity's business."""
    rank, reports = delayed(step), step.reports
    if rank is None or table.status(reports) == "mixed":
        return None
    if table.status(reports) == "none":
        return f"rank {rank} is delayed although no rank is prefillable"
    widest = table.widest_capacity(reports, config)
    if table.slot_condition(reports, config) or table.queue_short(reports, config, capacity=widest):
        return None
    slots = f"{table.free_slots(reports, config)} free slots for size {table.max_size(reports)}"
    target = table.queue_target(reports, config)
    return f"rank {rank} is delayed at {slots}, waiting {table.max_waiting(reports)} of target {target}"


def only_slots(step: Step, config: DelayerConfig) -> bool:
    return all_with(step.reports, config, slot=True, queue=False)


def only_queue(step: Step, config: DelayerConfig) -> bool:
    return all_with(step.reports, config, slot=False, queue=True)


def target_truncated(step: Step, config: DelayerConfig) -> bool:
    product = table.max_running(step.reports) * (config.queue_min_ratio or 0)
    return table.status(step.reports) == "all" and 0 < product < 1


def not_held_below_watermark(step: Step, config: DelayerConfig) -> str | None:
    """delay.watermark: strictly below."""
    rank = delayed(step)
    low = [r for r, report in enumerate(step.reports) if table.below_watermark(report, config)]
    if rank is None or not low:
        return None
    usage, mark = step.reports[low[0]].token_usage, config.token_usage_low_watermark
    return f"rank {rank} is delayed although rank {low[0]} uses {usage} of its tokens, below the watermark {mark}"


def usage_equals_watermark(step: Step, config: DelayerConfig) -> bool:
    return any(r.prefillable and r.token_usage == config.token_usage_low_watermark for r in step.reports)


def watermark_overrules(step: Step, config: DelayerConfig) -> bool:
    """Below the watermark while there is a reason to wait."""
    reason = table.status(step.reports) == "mixed" or table.slot_condition(step.reports, config)
    return table.any_below(step.reports, config) and reason


def reason_fits(step: Step, config: DelayerConfig) -> str | None:
    """delay.reason."""
    for rank, verdict in enumerate(step.verdicts):
        wrong = wrong_reason(verdict, step) or wrong_wait(verdict, rank, step, config)
        if wrong:
            return f"rank {rank} {wrong}"
    return None


def wrong_reason(verdict: Verdict, step: Step) -> str | None:
    if verdict.reason not in REASONS:
        return f"gives the unknown reason {verdict.reason!r}"
    if (verdict.reason == "delay") == verdict.allow:
        return f"says {verdict.reason!r} and {'allows' if verdict.allow else 'does not allow'}"
    status = table.status(step.reports)
    return f"gives no reason in status {status}" if verdict.reason == "" and status != "none" else None


def wrong_wait(verdict: Verdict, rank: int, step: Step, config: DelayerConfig) -> str | None:
    so_far = step.before[rank].delayed_passes if step.before and step.before[rank].episode_open else 0
    bound = max(config.max_delay_passes - 1, 0)
    # An engine that has overrun its bound may say by how much: the overrun is delay.bounded-passes' business.
    due = {"no_wait": 0, "wait_timeout": max(bound, so_far), "token_watermark": so_far}.get(verdict.reason)
    said = f"reports {verdict.reason} after {verdict.wait_passes} passes"
    if due is not None and verdict.wait_passes != due:
        return f"{said}, not {due} (bound {config.max_delay_passes})"
    if verdict.reason == "wait_success" and verdict.wait_passes < 1:
        return f"{said}: it waited at least 1"
    return None


def mixed_then_all(case: PassesCase, _: PassesSeen) -> bool:
    """A wait in status mixed may end in status all with neither condition."""
    ends = [
        table.status(before) == "mixed" and all_with(reports, case.config, slot=False, queue=False)
        for before, reports in pairwise(case.passes)
    ]
    return case.config.max_delay_passes > 1 and any(ends)


def three_statuses(case: PassesCase, _: PassesSeen) -> bool:
    return len(set(statuses(case))) == 3


def free_pass_taken_once(step: Step, config: DelayerConfig) -> str | None:
    """delay.skip-first."""
    flags, before = free_passes(step)
    if any(was and not now for was, now in zip(before, flags, strict=True)):
        return f"the free pass was used and is unused again: {before} then {flags}"
    if flags != before and len(set(flags)) > 1:
        return f"the free pass is taken on some ranks only: {flags}"
    return spent(step, config) if flags != before else None


def free_passes(step: Step) -> tuple[list[bool], list[bool]]:
    """Per rank: is the free pass used after this pass; was it before."""
    flags = [verdict.free_pass_used for verdict in step.verdicts]
    return flags, [verdict.free_pass_used for verdict in step.before] or [False] * len(flags)


def spent(step: Step, config: DelayerConfig) -> str | None:
    """What used up the free pass although nothing was to be let through."""
    reports = step.reports
    if table.status(reports) != "all":
        return f"a pass of status {table.status(reports)} used up the free pass"
    if table.any_below(reports, config):
        return "a release by the watermark used up the free pass"
    widest = table.widest_capacity(reports, config)
    if not table.slot_condition(reports, config) and not table.queue_short(reports, config, capacity=widest):
        return "the free pass was used up although there was no reason to wait"
    return None


def takes_free_pass(step: Step, config: DelayerConfig) -> bool:
    flags, before = free_passes(step)
    return all(flags) and not any(before)


def watermark_with_free_pass(step: Step, config: DelayerConfig) -> bool:
    """The watermark releases a pass that would have used up the free pass."""
    low = table.status(step.reports) == "all" and table.any_below(step.reports, config)
    return low and table.slot_condition(step.reports, config) and not any(free_passes(step)[1])
