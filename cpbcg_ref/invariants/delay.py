"""Registry of the delay.* invariants."""

from functools import partial

from cpbcg_ref.invariants import delay_pairs as pairs
from cpbcg_ref.invariants import delay_passes as trace
from cpbcg_ref.invariants import delay_should as advice
from cpbcg_ref.invariants.delay_trace import every_step, on, some_step
from cpbcg_ref.invariants.model import MUST, SHOULD

must, should = partial(on, level=MUST), partial(on, level=SHOULD)

INVARIANTS = [
    must(
        "skewed-passes",
        every_step(trace.same_on_every_rank),
        id="delay.agree",
        says="same verdict, reason, wait in passes and next state (episode open, its delay count, free pass used) on "
        "every rank, under any clock skew; start times and seconds are local",
        sources="sglang#30521 sglang#32454",
        clocks_on_both_sides_of_the_limit=some_step(trace.clocks_on_both_sides),
    ),
    must(
        "passes",
        trace.allowed_within_bound,
        id="delay.bounded-passes",
        says="a rank prefillable in max(1, max_delay_passes) consecutive passes is allowed at least once",
        sources="sglang#32880 sglang#18309 vllm-project/tpu-inference#2577 TensorRT-LLM#17379",
        prefillable_for_longer_than_the_bound=trace.longer_than_bound,
        slot_condition_held_for_a_whole_bound=trace.slots_short_for_a_bound,
        bound_0_or_1=lambda case, seen: case.config.max_delay_passes < 2,
    ),
    must(
        "passes",
        every_step(trace.released_by_time),
        id="delay.bounded-time",
        says="in status all with the slot condition false, no pass is delayed when a rank's timer had run out before "
        "the gather; mixed and slot delays are bounded by passes only",
        sources="sglang#32454",
        an_episode_released_by_time=some_step(trace.time_decides),
        a_clock_equal_to_the_limit=some_step(trace.clock_equals_limit),
    ),
    must(
        "passes",
        every_step(trace.has_a_reason),
        id="delay.justified",
        says="a delay implies mixed status, or the slot or the queue condition",
        sources="sglang#35191",
        slot_condition_held_alone=some_step(trace.only_slots),
        queue_condition_held_alone=some_step(trace.only_queue),
        target_truncated_to_0=some_step(trace.target_truncated),
    ),
    must(
        "last-pass",
        pairs.waits_for_its_cap,
        id="delay.target-capacity",
        says="with prefill_max_requests set, the queue verdict does not depend on max_prefill_bs (judged by changing "
        "it while the slot condition stays the same); unset, the target is capped by the observed maximum",
        sources="sglang#35191",
        the_configured_cap_decides=pairs.configured_cap_decides,
        the_observed_maximum_decides=pairs.observed_cap_decides,
    ),
    must(
        "attempts",
        pairs.remembers_recent,
        id="delay.recent-size",
        says="max_prefill_bs forgets an old burst, never falls below 1 after an attempt, and does not age in idle "
        "passes",
        sources="sglang#34284",
        a_burst_older_than_16_attempts=pairs.old_burst,
        an_idle_pass_after_an_attempt=pairs.idle_after_attempt,
        an_attempt_rejected_without_free_slots=pairs.rejected_without_slots,
    ),
    must(
        "passes",
        every_step(trace.not_held_below_watermark),
        id="delay.watermark",
        says="no delay while a prefillable rank is below the watermark (equality is not below)",
        usage_equal_to_the_watermark=some_step(trace.usage_equals_watermark),
        below_the_watermark_with_a_reason_to_wait=some_step(trace.watermark_overrules),
    ),
    must(
        "passes",
        every_step(trace.reason_fits),
        id="delay.reason",
        says="`delay` if and only if not allowed; reported wait in passes: `no_wait` 0, `wait_success` at least 1, "
        '`wait_timeout` max(bound - 1, 0), `token_watermark` the count so far; `""` only in status `none`',
        sources="sglang#25949 sglang#25975",
        mixed_then_all=trace.mixed_then_all,
        a_status_sequence_with_all_three_kinds=trace.three_statuses,
    ),
    must(
        "passes",
        every_step(trace.free_pass_taken_once),
        id="delay.skip-first",
        says="the free pass is taken at most once, on the same pass on every rank; a watermark or mixed release does "
        "not consume it",
        free_pass_taken=some_step(trace.takes_free_pass),
        the_watermark_released_what_the_free_pass_would_have=some_step(trace.watermark_with_free_pass),
    ),
    must(
        "last-pass",
        pairs.longer_queue_not_worse,
        id="delay.monotone",
        says="for one decision (same state, same rest of the table) a longer queue never turns allow into delay",
        the_length_of_the_queue_decides=pairs.queue_decides,
    ),
    should(
        "passes",
        advice.budget_survives_empty_passes,
        id="delay.budget",
        says="a pass in which nobody is prefillable does not restart a waiting request's budget",
        sources="ROCm/ATOM#1437",
        prefillable_then_nobody_then_prefillable=advice.empty_between,
    ),
    should(
        "passes",
        every_step(advice.idle_is_not_held),
        id="delay.no-idle-hold",
        says="nothing is held while nobody decodes",
        a_request_while_nobody_decodes=some_step(advice.idle_with_a_request),
    ),
    should(
        "passes",
        every_step(advice.target_is_reachable),
        id="delay.reachable-target",
        says="the target never exceeds the free slots",
        sources="sglang#35191",
        target_above_the_free_slots=some_step(advice.target_above_slots),
    ),
    should(
        "passes",
        every_step(advice.slots_are_own),
        id="delay.own-slots",
        says="the slot condition compares a rank's running with the same rank's size",
        slot_condition_by_numbers_of_two_ranks=some_step(advice.slots_mixed),
    ),
    should(
        "votes",
        advice.chunk_counts,
        id="delay.chunk-counts",
        says="a rank that will prefill anyway (a chunk in progress) counts as prefillable",
        sources="sglang#16665 sglang#35241",
        a_chunk_and_nothing_new=advice.only_a_chunk,
    ),
]
