"""Prefill now or wait for a fuller batch: section 4 of the specification."""


def test_all_ranks_reach_the_same_verdict_and_state_under_any_clock_skew(holds):
    holds("delay.agree")


def test_a_rank_that_stays_prefillable_is_allowed_within_the_bound_on_passes(holds):
    holds("delay.bounded-passes")


def test_a_timer_that_ran_out_before_the_gather_ends_the_wait_for_the_queue(holds):
    holds("delay.bounded-time")


def test_every_delay_has_a_reason_in_the_gathered_table(holds):
    holds("delay.justified")


def test_a_configured_prefill_limit_and_not_the_observed_size_caps_the_queue_target(holds):
    holds("delay.target-capacity")


def test_the_recent_size_forgets_an_old_burst_and_does_not_age_while_idle(holds):
    holds("delay.recent-size")


def test_a_prefillable_rank_below_the_watermark_is_never_delayed(holds):
    holds("delay.watermark")


def test_the_reported_reason_and_wait_match_what_happened(holds):
    holds("delay.reason")


def test_the_free_pass_is_taken_once_and_by_all_ranks_together(holds):
    holds("delay.skip-first")


def test_a_longer_queue_never_turns_an_allow_into_a_delay(holds):
    holds("delay.monotone")


def test_a_pass_in_which_nobody_is_prefillable_does_not_restart_a_waiting_budget(holds):
    holds("delay.budget")


def test_nothing_is_held_while_nobody_decodes(holds):
    holds("delay.no-idle-hold")


def test_the_queue_target_never_exceeds_the_free_slots(holds):
    holds("delay.reachable-target")


def test_the_slot_condition_compares_a_rank_with_itself(holds):
    holds("delay.own-slots")


def test_a_rank_with_a_chunk_in_progress_counts_as_prefillable(holds):
    holds("delay.chunk-counts")
