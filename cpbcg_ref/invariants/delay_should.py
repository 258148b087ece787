"""The delay.* invariants of level SHOULD: public weaknesses of the policy, judged where the trace shows them."""

from typing import Any

from cpbcg_ref.answers import PassesSeen, VotesSeen
from cpbcg_ref.cases import DelayerConfig, PassesCase, VotesCase
from cpbcg_ref.invariants.delay_trace import bound_of, delayed, raised_at, runs_of, statuses
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step


def budget_survives_empty_passes(case: PassesCase, seen: PassesSeen, _: Any) -> str | None:
    """delay.budget: passes in which nobody is prefillable neither restart a budget nor use it up."""
    trace = list(table.steps(case.passes, seen.passes))
    for rank in range(len(trace[0].reports) if trace else 0):
        sentence = restarted(trace, rank, bound_of(case.config)) or used_up(trace, rank, case.config)
        if sentence:
            return sentence
    return raised_at(seen.passes)


def restarted(trace: list[Step], rank: int, bound: int) -> str | None:
    """delay.bounded-passes, empty passes left out; without any in between that one judges alone."""
    busy = [step for step in trace if table.status(step.reports) != "none"]
    held = [step.reports[rank].prefillable and not step.verdicts[rank].allow for step in busy]
    for begin in runs_of(held, bound):
        first, last = busy[begin].number, busy[begin + bound - 1].number
        if last - first >= bound:
            empty = f"with {last - first + 1 - bound} empty passes between"
            return f"passes {first} to {last}: rank {rank} was held in {bound} passes (bound {bound}) {empty}"
    return None


def used_up(trace: list[Step], rank: int, config: DelayerConfig) -> str | None:
    """A timeout after fewer delays than the bound, with empty passes since the last release."""
    delays = empty = 0
    for step in trace:
        verdict = step.verdicts[rank]
        if table.status(step.reports) == "none":
            empty += 1
        elif not verdict.allow:
            delays += 1
        else:
            early = verdict.reason == "wait_timeout" and delays < config.max_delay_passes - 1
            if early and empty:
                after = f"after {delays} delays and {empty} empty passes (bound {config.max_delay_passes})"
                return f"pass {step.number}: rank {rank} times out {after}"
            delays = empty = 0
    return None


def empty_between(case: PassesCase, _: PassesSeen) -> bool:
    """A rank is prefillable, nobody is, and it is again."""
    seen = statuses(case)
    return any(
        seen[i] == "none" and any(a.prefillable and b.prefillable for a, b in zip(before, after, strict=True))
        for i, before, after in zip(range(1, len(seen)), case.passes, case.passes[2:], strict=False)
    )


def idle_is_not_held(step: Step, config: DelayerConfig) -> str | None:
    """delay.no-idle-hold, by what the ranks know: a release's own table shows zeros for ranks not prefillable."""
    rank = delayed(step)
    if rank is None or table.max_running(step.reports) > 0:
        return None
    return f"rank {rank} is delayed in status {table.status(step.reports)} although nobody decodes"


def idle_with_a_request(step: Step, config: DelayerConfig) -> bool:
    return table.status(step.reports) != "none" and table.max_running(step.reports) == 0


def target_is_reachable(step: Step, config: DelayerConfig) -> str | None:
    """delay.reachable-target: a rank whose queue fills all its free slots waits for nothing that could be admitted."""
    rank, reports = delayed(step), step.reports
    if rank is None or table.status(reports) != "all" or table.slot_condition(reports, config):
        return None
    for full, report in enumerate(reports):
        free = table.running_limit(config) - report.running_batch
        if report.waiting_queue_len >= free:
            target = f"target {table.queue_target(reports, config)}"
            queue = f"rank {full} has {report.waiting_queue_len} waiting for {free} free slots"
            return f"rank {rank} is delayed although {queue} ({target})"
    return None


def target_above_slots(step: Step, config: DelayerConfig) -> bool:
    reports = step.reports
    free = table.free_slots(reports, config)
    short = table.status(reports) == "all" and table.queue_short(reports, config)
    return short and table.max_size(reports) <= free < table.queue_target(reports, config)


def slots_are_own(step: Step, config: DelayerConfig) -> str | None:
    """delay.own-slots, where only the slot condition can have given the reason."""
    rank, reports = delayed(step), step.reports
    if rank is None or not slots_mixed(step, config):
        return None
    running, size = table.max_running(reports), table.max_size(reports)
    limit = table.running_limit(config)
    return f"rank {rank} is delayed: running {running} and size {size} of {limit} slots are of different ranks"


def slots_mixed(step: Step, config: DelayerConfig) -> bool:
    """The slot condition holds, but for no rank with its own running and size; the queue gives no reason."""
    reports = step.reports
    own = any(table.own_slot_condition(report, config) for report in reports)
    widest = table.widest_capacity(reports, config)
    queue = table.queue_short(reports, config, capacity=widest)
    return table.status(reports) == "all" and table.slot_condition(reports, config) and not own and not queue


def only_a_chunk(case: VotesCase, _: VotesSeen) -> bool:
    return any(chunk and not new for chunk, new in zip(case.mid_chunk, case.waiting, strict=True))


def chunk_counts(case: VotesCase, seen: VotesSeen, _: Any) -> str | None:
    """delay.chunk-counts: the vote is cast by the scheduler above the negotiation, so it has its own question."""
    for rank, (chunk, vote) in enumerate(zip(case.mid_chunk, seen.prefillable, strict=True)):
        if chunk and not vote:
            return f"rank {rank} votes not prefillable although it goes on with a chunk"
    return None
