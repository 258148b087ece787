"""Numbers known by brute force, written down: section 7 of the specification. They hold the reference to its letter."""

import pytest

from cpbcg_ref import (
    capture_requests,
    extend_lengths,
    is_cp_active,
    kv_segments,
    per_rank_logical_tokens,
    required_local_tokens,
    select_replay_bucket,
)
from cpbcg_ref.delayer import DelayerConfig, DelayerState, make_report, negotiate


def chosen(num_tokens, required, table):
    return select_replay_bucket(
        num_tokens=num_tokens,
        required_local_tokens=required,
        capture_num_tokens=list(table),
        bucket_local_tokens=table,
    )


@pytest.mark.parametrize(
    ("lengths", "cp_size", "rows", "required"),
    [
        ([1534, 161, 353], 4, (513, 511, 512, 512), 520),
        ([9, 9, 9], 4, (9, 6, 6, 6), 16),
        ([9] * 16, 4, (48, 32, 32, 32), 48),
        ([9] * 200, 4, (600, 400, 400, 400), 600),
    ],
)
def test_remainders_of_all_requests_pile_up_on_the_low_ranks(lengths, cp_size, rows, required):
    assert per_rank_logical_tokens(lengths, cp_size=cp_size) == rows
    assert required_local_tokens(lengths, cp_size=cp_size) == required


@pytest.mark.parametrize(
    ("lengths", "table", "bucket"),
    [
        ([1534, 161, 353], {2048: 512, 2304: 576, 2560: 640}, 2304),
        ([1534, 161, 353], {2048: 512, 2304: 516}, None),
        ([9, 9, 9], {32: 8, 48: 16}, 48),
        ([9, 9, 9], {32: 8, 64: 16}, None),
        ([9] * 16, {144: 40, 152: 40, 192: 48}, 192),
        ([9] * 200, {2048: 512}, None),
    ],
)
def test_the_choice_looks_at_rows_and_at_tokens(lengths, table, bucket):
    assert chosen(sum(lengths), required_local_tokens(lengths, cp_size=4), table) == bucket


def test_a_choice_by_tokens_alone_takes_the_2048_bucket_and_overflows_it_by_8_rows():
    table = {2048: 512, 2304: 576, 2560: 640}
    assert chosen(2048, 0, table) == 2048
    assert required_local_tokens([1534, 161, 353], cp_size=4) - table[2048] == 8


@pytest.mark.parametrize(
    ("cp_size", "lengths", "needs", "has"), [(2, [5] * 3, 12, 8), (4, [9] * 3, 16, 8), (8, [17] * 6, 32, 16)]
)
def test_equal_requests_need_more_rows_than_a_bucket_of_their_total(cp_size, lengths, needs, has):
    assert required_local_tokens(lengths, cp_size=cp_size) == needs
    assert required_local_tokens([sum(lengths)], cp_size=cp_size) == has


@pytest.mark.parametrize("cp_size", [2, 4, 8])
def test_no_two_requests_overflow_a_bucket_of_their_total(cp_size):
    shortest = 2 * cp_size
    pairs = [(a, total - a) for total in range(2 * shortest, 400) for a in range(shortest, total // 2 + 1)]
    assert all(
        required_local_tokens(pair, cp_size=cp_size) <= required_local_tokens([sum(pair)], cp_size=cp_size)
        for pair in pairs
    )


@pytest.mark.parametrize(("cp_size", "fewer"), [(2, 3), (4, 3), (8, 6)])
def test_no_smaller_batch_of_equal_requests_overflows_a_bucket_of_its_total(cp_size, fewer):
    most = fewer * (2 * cp_size + 1)
    for length in range(2 * cp_size, most // 2 + 1):
        for count in range(1, (most - 1) // length + 1):
            rows = required_local_tokens([length] * count, cp_size=cp_size)
            assert rows <= required_local_tokens([length * count], cp_size=cp_size), (length, count)


def test_a_bucket_of_exactly_twice_the_tokens_is_allowed_and_one_more_is_not():
    assert chosen(1024, 512, {2048: 512}) == 2048
    assert chosen(1023, 512, {2048: 512}) is None


@pytest.mark.parametrize(("num_tokens", "bucket"), [(2700, 2816), (3208, None), (3353, None)])
def test_a_sparse_ladder_leaves_some_batches_eager(num_tokens, bucket):
    assert chosen(num_tokens, 0, {2816: 704, 3072: 768, 8192: 2048}) == bucket


@pytest.mark.parametrize(
    ("lengths", "active"), [([8], True), ([7], False), ([100, 3], False), ([], False), ([9, 9, 9], True)]
)
def test_cp_is_active_when_every_request_has_a_token_for_each_block(lengths, active):
    assert is_cp_active(lengths, cp_size=4) is active


def test_a_prefix_hit_turns_cp_off():
    assert is_cp_active([1005], cp_size=8)
    assert not is_cp_active(extend_lengths([1005], prefixes=[1000]), cp_size=8)


def test_early_and_late_block_of_each_rank_see_these_keys():
    keys = [[seen for _, seen in rank] for rank in kv_segments([3670], cp_size=4, prefixes=[1])]
    assert keys == [[460, 3671], [919, 3213], [1378, 2755], [1837, 2296]]


def test_rows_are_aligned_by_strategy_and_not_at_all_on_one_rank():
    assert required_local_tokens([5], cp_size=1) == 5
    assert required_local_tokens([40], cp_size=4) == 16
    assert required_local_tokens([40], cp_size=4, strategy="interleave") == 12


@pytest.mark.parametrize(
    ("bucket", "context_length", "requests"),
    [(128, 64, (64, 64)), (16, 9, (8, 8)), (9, 8, ()), (27, 9, (9, 9, 9))],
)
def test_capture_splits_a_bucket_evenly_into_as_few_requests_as_the_context_allows(bucket, context_length, requests):
    assert capture_requests(bucket, cp_size=4, context_length=context_length) == requests


def test_captured_rows_depend_on_the_split():
    assert required_local_tokens([9, 9, 9], cp_size=4) == 16
    assert required_local_tokens([8, 9, 10], cp_size=4) == 8


def causal_work(length, cp_size):
    """Per rank, keys seen by all of its rows together."""
    ranks = kv_segments([length], cp_size=cp_size)
    return [sum(seen - row for rows, seen in rank for row in range(rows)) for rank in ranks]


@pytest.mark.parametrize(("cp_size", "gaps"), [(2, [0, 1, 3, 8]), (4, [0, 1, 3, 6, 9, 18, 17, 16])])
def test_causal_work_differs_between_ranks_by_these_gaps(cp_size, gaps):
    work = [causal_work(2 * cp_size + extra, cp_size) for extra in range(2 * cp_size)]
    assert [max(of_rank) - min(of_rank) for of_rank in work] == gaps


def decisions(config, passes):
    """Decisions per pass and rank; a pass is (clock in ms, row) for each rank."""
    states, made = [DelayerState()] * config.dp_size, []
    for ranks in passes:
        pairs = list(zip(ranks, states, strict=True))
        table = [make_report(state, config, now_ms=now, **row) for (now, row), state in pairs]
        made.append([negotiate(table, state, config, now_ms=now) for (now, _), state in pairs])
        states = [decision.state for decision in made[-1]]
    return made


def reasons(config, passes):
    return [[decision.reason for decision in ranks] for ranks in decisions(config, passes)]


def row(prefillable=True, usage=0.9, running=0, size=0, waiting=0):
    return {
        "prefillable": prefillable,
        "token_usage": usage,
        "running_batch": running,
        "max_prefill_bs": size,
        "waiting_queue_len": waiting,
    }


@pytest.mark.parametrize(("prefill_max_requests", "second"), [(128, "delay"), (None, "no_wait")])
def test_the_configured_prefill_limit_and_not_the_observed_size_caps_the_target(prefill_max_requests, second):
    config = DelayerConfig(
        dp_size=4,
        max_delay_passes=30,
        max_running_requests=1024,
        queue_min_ratio=0.02,
        prefill_max_requests=prefill_max_requests,
        token_usage_low_watermark=0.8,
    )
    ranks = [(0.0, row(running=500, size=1, waiting=1))] * 4
    assert reasons(config, [ranks, ranks]) == [["no_wait"] * 4, [second] * 4]


def test_clocks_on_both_sides_of_the_limit_give_one_verdict():
    config = DelayerConfig(
        dp_size=2,
        max_delay_passes=100,
        max_running_requests=64,
        max_delay_ms=500.0,
        queue_min_ratio=0.5,
        prefill_max_requests=4,
    )
    rank = row(running=8, size=4, waiting=1)
    passes = [[(now, rank) for now in clocks] for clocks in ((0.0, 0.0), (0.0, 0.0), (499.9, 500.1))]
    assert reasons(config, passes) == [["no_wait"] * 2, ["delay"] * 2, ["wait_success"] * 2]


def test_a_slot_condition_that_never_clears_is_released_every_third_pass():
    config = DelayerConfig(dp_size=1, max_delay_passes=3, max_running_requests=128)
    made = decisions(config, [[(0.0, row(running=100, size=80, waiting=1))]] * 40)
    assert sum(decision.allow for (decision,) in made) == 14
    assert [decision.reason for (decision,) in made[:4]] == ["no_wait", "delay", "delay", "wait_timeout"]
    assert {decision.wait_passes for (decision,) in made if decision.reason == "wait_timeout"} == {2}


MIXED = [(0.0, row()), (0.0, row(prefillable=False))]
ALL = [(0.0, row()), (0.0, row())]


def test_a_mixed_status_is_released_on_the_third_pass_of_bound_three():
    config = DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=64)
    made = decisions(config, [MIXED] * 3)
    assert [ranks[0].reason for ranks in made] == ["delay", "delay", "wait_timeout"]
    assert made[-1][0].wait_passes == 2


@pytest.mark.parametrize("bound", [2, 3, 30])
def test_a_wait_that_ends_well_reports_its_length(bound):
    config = DelayerConfig(dp_size=2, max_delay_passes=bound, max_running_requests=64)
    last = decisions(config, [MIXED, ALL])[-1]
    assert [(decision.reason, decision.wait_passes) for decision in last] == [("wait_success", 1)] * 2


@pytest.mark.parametrize("bound", [0, 1])
def test_a_bound_of_zero_or_one_never_waits(bound):
    config = DelayerConfig(dp_size=2, max_delay_passes=bound, max_running_requests=64)
    assert reasons(config, [MIXED]) == [["wait_timeout"] * 2]
