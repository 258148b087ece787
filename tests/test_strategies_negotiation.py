"""Generated negotiation cases keep their promises, and go where upstream's own tests never go."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings

from cpbcg_ref.cases import DelayerConfig
from cpbcg_ref.oracles import passes as table
from cpbcg_ref.strategies.negotiation import attempts_cases, delayer_configs, last_pass_cases, passes_cases

GENERATE = settings(
    max_examples=300, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
DEPLOYED = DelayerConfig(
    dp_size=2, max_delay_passes=30, max_running_requests=100, queue_min_ratio=0.1, prefill_max_requests=7
)


def generated(strategy) -> list:
    cases: list = []

    @seed(0)
    @GENERATE
    @given(strategy)
    def collect(case):
        cases.append(case)

    collect()
    return cases


EQUAL, SKEWED = generated(passes_cases()), generated(passes_cases(skewed=True))
LAST, ATTEMPTS = generated(last_pass_cases()), generated(attempts_cases())
REPORTS = [report for case in EQUAL for reports in case.passes for report in reports]


def ranks(case) -> set[int]:
    passes = case.passes if hasattr(case, "passes") else (*case.history, case.last, case.other_last)
    return {len(reports) for reports in passes}


@pytest.mark.parametrize("cases", [EQUAL, SKEWED, LAST, ATTEMPTS])
def test_nearly_every_generated_case_is_a_new_one(cases):
    """Drawn as a tree they were not: five of six were variations of the case before."""
    assert len(set(cases)) > 0.9 * len(cases)
    if hasattr(cases[0], "config"):
        assert sum(a.config != b.config for a, b in pairwise(cases)) > 0.9 * len(cases)


@pytest.mark.parametrize("cases", [EQUAL, SKEWED, LAST])
def test_every_pass_has_one_report_per_rank_of_the_gather(cases):
    for case in cases:
        assert ranks(case) == {case.config.dp_size if case.config.enable_dp_attention else 1}


def test_clocks_are_equal_unless_skewed_and_never_run_backwards():
    for case in EQUAL:
        assert all(len({report.now_ms for report in reports}) == 1 for reports in case.passes)
    for case in EQUAL + SKEWED:
        for before, after in pairwise(case.passes):
            assert all(a.now_ms <= b.now_ms for a, b in zip(before, after, strict=True))


def test_skewed_clocks_stand_on_both_sides_of_a_limit():
    sides = 0
    for case in SKEWED:
        limit = case.config.max_delay_ms
        offsets = [{r.now_ms % limit for r in reports} for reports in case.passes]
        sides += any(any(o > limit / 2 for o in found) and any(o < limit / 2 for o in found) for found in offsets)
    assert sides > 30


def test_numbers_are_such_that_an_engine_can_report_them():
    for case in EQUAL + SKEWED:
        limit = table.running_limit(case.config)
        for report in (report for reports in case.passes for report in reports):
            assert 0 <= report.running_batch <= limit
            assert 0 <= report.max_prefill_bs <= limit
            assert report.waiting_queue_len >= 0


def test_ranks_differ_in_every_gathered_field():
    fields = ("prefillable", "token_usage", "running_batch", "max_prefill_bs", "waiting_queue_len")
    differing = Counter(
        name
        for case in EQUAL
        for reports in case.passes
        for name in fields
        if len({getattr(report, name) for report in reports}) > 1
    )
    assert all(differing[name] > 100 for name in fields), differing


def test_a_rank_that_is_not_prefillable_mostly_reports_zeros():
    silent = [not any((r.running_batch, r.max_prefill_bs, r.waiting_queue_len)) for r in REPORTS if not r.prefillable]
    assert 0.6 < sum(silent) / len(silent) < 0.95


def test_bounds_limits_and_lengths_reach_the_edges():
    assert {case.config.max_delay_passes for case in EQUAL} == {0, 1, 2, 3, 4, 8}
    assert {case.config.dp_size for case in EQUAL} == {1, 2, 3, 4, 8}
    assert max(len(case.passes) for case in EQUAL) == 24
    assert min(len(case.passes) for case in EQUAL) <= 2
    assert {case.config.enable_dp_attention for case in EQUAL} == {True, False}


def test_conditions_meet_in_every_combination():
    met = Counter(
        (table.slot_condition(reports, case.config), table.queue_short(reports, case.config))
        for case in EQUAL
        for reports in case.passes
        if table.status(reports) == "all"
    )
    assert min(met[slot, queue] for slot in (True, False) for queue in (True, False)) > 100


def test_free_slots_and_queues_stand_just_around_their_thresholds():
    slots, queues = Counter(), Counter()
    for case in EQUAL:
        for reports in case.passes:
            slots[table.free_slots(reports, case.config) - table.max_size(reports)] += 1
            target = table.queue_target(reports, case.config)
            queues[table.max_waiting(reports) - target] += target > 0
    assert all(slots[gap] > 50 for gap in (-1, 0, 1)), slots
    assert all(queues[gap] > 50 for gap in (-1, 0, 1)), queues


def test_a_rank_alone_in_its_gather_meets_the_conditions_as_often():
    alone = [(case.config, p[0]) for case in EQUAL for p in case.passes if len(p) == 1 and p[0].prefillable]
    held = [table.slot_condition((r,), config) or table.queue_short((r,), config) for config, r in alone]
    assert sum(held) > 0.6 * len(held)


@pytest.mark.parametrize("strategy", [passes_cases, last_pass_cases])
def test_a_deployment_pins_the_configuration(strategy):
    assert {case.config for case in generated(strategy(config=DEPLOYED))} == {DEPLOYED}


def test_a_long_bound_gets_passes_enough_to_be_overrun():
    assert max(len(case.passes) for case in generated(passes_cases(config=DEPLOYED))) > DEPLOYED.max_delay_passes


def test_pairs_differ_in_sizes_or_in_queues_and_in_nothing_else():
    kinds = Counter()
    for case in LAST:
        pairs = list(zip(case.last, case.other_last, strict=True))
        kinds[tuple(sorted({f for a, b in pairs for f in vars(a) if getattr(a, f) != getattr(b, f)}))] += 1
    assert set(kinds) <= {("max_prefill_bs",), ("waiting_queue_len",), ()}
    assert kinds[("max_prefill_bs",)] > 90
    assert kinds[("waiting_queue_len",)] > 90


def test_attempts_outlast_the_window_and_pause():
    sizes = [[size for size in map(table.attempt_size, case.attempts) if size] for case in ATTEMPTS]
    assert sum(len(found) > table.WINDOW for found in sizes) > 60
    assert max(len(case.attempts) for case in ATTEMPTS) <= 85


@pytest.mark.parametrize("waits", [delayer_configs(), passes_cases().map(lambda case: case.config)])
def test_the_simplest_configuration_is_small(waits):
    smallest = find(waits, lambda config: True, settings=settings(database=None))
    assert (smallest.dp_size, smallest.max_delay_passes, smallest.max_running_requests) == (1, 1, 8)


def test_a_case_shrinks_to_a_few_passes_of_two_ranks():
    def mixed_twice(case):
        return [table.status(reports) for reports in case.passes].count("mixed") >= 2

    smallest = find(passes_cases(), mixed_twice, settings=settings(database=None, max_examples=2000))
    assert len(smallest.passes) == 2
    assert ranks(smallest) == {2}
    assert {report.now_ms for reports in smallest.passes for report in reports} == {0.0}
