"""The delay.* invariants of level SHOULD: public weaknesses of the policy, judged where the trace shows them."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from cpbcg_ref.answers import PassesSeen, VotesSeen
from cpbcg_ref.cases import DelayerConfig, PassesCase, VotesCase
from cpbcg_ref.invariants.delay_trace import bound_of, delays, raised_at
from cpbcg_ref.invariants.model import SHOULD, Sentences, invariant
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.oracles.passes import Step

should = partial(invariant, level=SHOULD)
delays_should = partial(delays, level=SHOULD)


def prefillable_then_nobody_then_prefillable(case: PassesCase, seen: PassesSeen) -> bool:
    triples = zip(case.passes, case.passes[1:], case.passes[2:], strict=False)
    around = [zip(before, after, strict=True) for before, now, after in triples if table.status(now) == "none"]
    return any(one.prefillable and other.prefillable for ranks in around for one, other in ranks)


@should("delay.budget", prefillable_then_nobody_then_prefillable, family="passes", sources="ROCm/ATOM#1437")
def budget_survives_empty_passes(case: PassesCase, seen: PassesSeen, _: Any) -> Sentences:
    """A pass in which nobody is prefillable does not restart a waiting request's budget."""
    for rank in range(len(case.passes[0])):
        yield from budget(table.steps(case.passes, seen.passes), rank, bound_of(case.config))
    yield from raised_at(seen.passes)


def budget(trace: Iterable[Step], rank: int, bound: int) -> Sentences:
    """A hold that is too long once empty passes are left out, and a timeout that is early unless they count."""
    held: list[int] = []  # since the last release, the passes in which the rank was prefillable
    delays = empty = 0
    for step in trace:
        verdict = step.verdicts[rank]
        if table.status(step.reports) == "none":
            empty += 1
        elif verdict.allow:
            if empty and verdict.reason == "wait_timeout" and delays < bound - 1:
                after = f"after {delays} delays and {empty} empty passes (bound {bound})"
                yield f"pass {step.number}: rank {rank} times out {after}"
            held, delays, empty = [], 0, 0
        else:
            delays += 1
            held = [*held, step.number] if step.reports[rank].prefillable else []
            between = step.number - held[0] + 1 - len(held) if held else 0
            if between and len(held) >= bound > 1:
                passes = f"in {len(held)} passes (bound {bound}) with {between} empty passes between"
                yield f"passes {held[0]} to {step.number}: rank {rank} was held {passes}"


def a_request_while_nobody_decodes(step: Step, config: DelayerConfig) -> bool:
    return table.status(step.reports) != "none" and table.max_running(step.reports) == 0


@delays_should("delay.no-idle-hold", a_request_while_nobody_decodes)
def idle_is_not_held(step: Step, config: DelayerConfig) -> Sentences:
    """Nothing is held while nobody decodes."""
    # By what the ranks know: a release's own table shows zeros for ranks that are not prefillable.
    if table.max_running(step.reports) == 0:
        yield f"in status {table.status(step.reports)} although nobody decodes"


def target_above_the_free_slots(step: Step, config: DelayerConfig) -> bool:
    reports, free = step.reports, table.free_slots(step.reports, config)
    short = table.status(reports) == "all" and table.queue_short(reports, config)
    return short and table.max_size(reports) <= free < table.queue_target(reports, config)


@delays_should("delay.reachable-target", target_above_the_free_slots, sources="35191")
def target_is_reachable(step: Step, config: DelayerConfig) -> Sentences:
    """The target never exceeds the free slots."""
    # A rank whose queue fills all its free slots waits for nothing that could be admitted.
    by_queue = table.status(step.reports) == "all" and not table.slot_condition(step.reports, config)
    for rank, report in enumerate(step.reports):
        free = table.free_slots((report,), config)
        if by_queue and report.waiting_queue_len >= free:
            queue = f"rank {rank} has {report.waiting_queue_len} waiting for {free} free slots"
            yield f"although {queue} (target {table.queue_target(step.reports, config)})"


def slot_condition_by_numbers_of_two_ranks(step: Step, config: DelayerConfig) -> bool:
    """It holds, but for no rank with its own running and size; the queue gives no reason."""
    own = any(table.slot_condition((report,), config) for report in step.reports)
    mixed = table.slot_condition(step.reports, config) and not own
    return mixed and table.status(step.reports) == "all" and not table.queue_may_be_short(step.reports, config)


@delays_should("delay.own-slots", slot_condition_by_numbers_of_two_ranks)
def slots_are_own(step: Step, config: DelayerConfig) -> Sentences:
    """The slot condition compares a rank's running with the same rank's size."""
    if slot_condition_by_numbers_of_two_ranks(step, config):
        numbers = f"running {table.max_running(step.reports)} and size {table.max_size(step.reports)}"
        yield f"although {numbers} of {table.running_limit(config)} slots are of different ranks"


def a_chunk_and_nothing_new(case: VotesCase, seen: VotesSeen) -> bool:
    return any(chunk and not new for chunk, new in zip(case.mid_chunk, case.waiting, strict=True))


@should("delay.chunk-counts", a_chunk_and_nothing_new, family="votes", sources="16665 35241")
def chunk_counts(case: VotesCase, seen: VotesSeen, _: Any) -> Sentences:
    """A rank that will prefill anyway (a chunk in progress) counts as prefillable."""
    for rank, (chunk, vote) in enumerate(zip(case.mid_chunk, seen.prefillable, strict=True)):
        if chunk and not vote:
            yield f"rank {rank} votes not prefillable although it goes on with a chunk"
