"""The negotiation, pass by pass, with every clock in the test's hand."""

from dataclasses import dataclass, field

import pytest

from cpbcg_ref import DelayerConfig, DelayerState, InvalidInput, RankReport, RecentAttempts, make_report, negotiate


@dataclass
class Ranks:
    """DP ranks in lockstep. A pass takes one dict per rank; what a dict leaves out is idle but prefillable."""

    config: DelayerConfig
    states: list[DelayerState] = field(default_factory=list)

    def step(self, *rows, now=None):
        rows = [{"prefillable": True, "token_usage": 1.0} | row for row in rows]
        now = now or [0.0] * len(rows)
        self.states = self.states or [DelayerState()] * len(rows)
        clocks = list(zip(self.states, now, strict=True))
        table = [
            make_report(state, self.config, now_ms=ms, **row) for (state, ms), row in zip(clocks, rows, strict=True)
        ]
        decisions = [negotiate(table, state, self.config, now_ms=ms) for state, ms in clocks]
        self.states = [decision.state for decision in decisions]
        assert [decision.allow for decision in decisions] == [decision.reason != "delay" for decision in decisions]
        return [(decision.reason, decision.wait_passes) for decision in decisions]


def ranks(**settings):
    return Ranks(DelayerConfig(**{"dp_size": 2, "max_delay_passes": 3, "max_running_requests": 8} | settings))


FULL = {"running_batch": 8, "max_prefill_bs": 2}  # the slot condition
SHORT = {"running_batch": 4, "max_prefill_bs": 2, "waiting_queue_len": 1}  # the queue condition at ratio 0.5
NOBODY_WAITS = SHORT | {"waiting_queue_len": 0}
IDLE = {"prefillable": False}
LOW = {"token_usage": 0.79}
POLICIES = ["seed", "hardened"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_slot_condition_delays_up_to_the_bound_after_one_free_pass(policy):
    group = ranks(policy=policy)
    got = [group.step(FULL, FULL)[0] for _ in range(5)]
    assert got == [("no_wait", 0), ("delay", 0), ("delay", 0), ("wait_timeout", 2), ("delay", 0)]


@pytest.mark.parametrize("policy", POLICIES)
def test_40_saturated_passes_of_bound_3_let_14_prefills_run(policy):
    group = ranks(policy=policy, max_running_requests=128)
    row = {"running_batch": 100, "max_prefill_bs": 80}
    reasons = [group.step(row, row)[0][0] for _ in range(40)]
    assert len(reasons) - reasons.count("delay") == 14


@pytest.mark.parametrize("policy", POLICIES)
def test_mixed_ranks_wait_for_each_other_up_to_the_bound(policy):
    group = ranks(policy=policy)
    got = [group.step({"running_batch": 1}, IDLE) for _ in range(3)]
    assert got == [[("delay", 0)] * 2] * 2 + [[("wait_timeout", 2)] * 2]


@pytest.mark.parametrize("bound", [0, 1])
def test_a_bound_of_0_or_1_times_out_at_once(bound):
    group = ranks(max_delay_passes=bound)
    assert group.step({}, IDLE) == [("wait_timeout", 0)] * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_ranks_that_become_prefillable_together_report_the_wait_that_was_worth_it(policy):
    group = ranks(policy=policy)
    busy = {"running_batch": 1}
    assert [group.step(busy, IDLE), group.step(busy, busy), group.step(busy, busy)] == [
        [("delay", 0)] * 2,
        [("wait_success", 1)] * 2,
        [("no_wait", 0)] * 2,
    ]


def test_the_free_pass_of_an_open_episode_counts_as_its_success():
    group = ranks()
    assert [group.step(FULL, IDLE)[0], group.step(FULL, FULL)[0]] == [("delay", 0), ("wait_success", 1)]
    assert group.step(FULL, FULL)[0] == ("delay", 0)


@pytest.mark.parametrize("rows", [(FULL | LOW, FULL), (LOW, IDLE)])
def test_a_release_by_watermark_or_in_mixed_status_keeps_the_free_pass(rows):
    group = ranks(token_usage_low_watermark=0.8)
    assert group.step(*rows)[0] == ("token_watermark", 0)
    assert [state.free_pass_used for state in group.states] == [False, False]
    assert group.step(FULL, FULL)[0] == ("no_wait", 0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [({"token_usage": 0.8}, "delay"), (LOW, "token_watermark"), (LOW | IDLE, "delay")],
)
def test_the_watermark_is_strict_and_only_a_prefillable_rank_has_one(row, reason):
    group = ranks(token_usage_low_watermark=0.8, dp_size=3)
    assert group.step(row, {}, IDLE)[2][0] == reason


def test_a_watermark_release_reports_the_delays_so_far():
    group = ranks(token_usage_low_watermark=0.8)
    assert [group.step({}, IDLE)[0], group.step(LOW, IDLE)[0]] == [("delay", 0), ("token_watermark", 1)]


@pytest.mark.parametrize(("cap", "reasons"), [(128, ["no_wait", "delay"]), (None, ["no_wait", "no_wait"])])
def test_the_queue_target_is_capped_by_configuration_and_only_without_one_by_what_was_observed(cap, reasons):
    group = ranks(
        dp_size=4,
        max_running_requests=1024,
        queue_min_ratio=0.02,
        prefill_max_requests=cap,
        token_usage_low_watermark=0.8,
    )
    row = {"token_usage": 0.9, "running_batch": 500, "max_prefill_bs": 1, "waiting_queue_len": 1}
    assert [group.step(*[row] * 4)[0][0] for _ in range(2)] == reasons


@pytest.mark.parametrize(("waiting", "reason"), [(0, "delay"), (1, "delay"), (2, "no_wait")])
def test_the_queue_condition_compares_the_longest_queue_with_the_target(waiting, reason):
    group = ranks(queue_min_ratio=0.5, max_running_requests=64)
    group.step(SHORT, SHORT)
    assert group.step(SHORT | {"waiting_queue_len": 0}, SHORT | {"waiting_queue_len": waiting})[0][0] == reason


def test_a_target_is_the_truncated_float_product():
    group = ranks(queue_min_ratio=0.29, max_running_requests=1024, prefill_max_requests=128)
    rows = [{"running_batch": 100, "waiting_queue_len": waiting} for waiting in (27, 27, 28)]  # 0.29 x 100 = 28.99..
    assert [group.step(row, row)[0][0] for row in rows] == ["no_wait", "delay", "wait_success"]


def test_a_ratio_beyond_all_numbers_leaves_the_capacity_as_the_target():
    group = ranks(queue_min_ratio=1e308, max_running_requests=1024, prefill_max_requests=5)
    rows = [{"running_batch": 100, "waiting_queue_len": waiting} for waiting in (4, 4, 5)]
    assert [group.step(row, row)[0][0] for row in rows] == ["no_wait", "delay", "wait_success"]


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({}, NOBODY_WAITS),
        ({"queue_min_ratio": 0.5}, NOBODY_WAITS | {"running_batch": 0}),
        ({"queue_min_ratio": 0.24}, NOBODY_WAITS),
        ({"queue_min_ratio": 0.5}, NOBODY_WAITS | {"max_prefill_bs": 0}),
    ],
)
def test_without_a_ratio_a_running_request_or_a_target_the_queue_holds_nothing(settings, row):
    group = ranks(max_running_requests=64, **settings)
    assert [group.step(row, row)[0][0] for _ in range(2)] == ["no_wait", "no_wait"]


@pytest.mark.parametrize("policy", POLICIES)
def test_one_rank_whose_timer_has_run_out_releases_all_ranks_alike(policy):
    group = ranks(policy=policy, queue_min_ratio=0.5, prefill_max_requests=4, max_running_requests=64, max_delay_ms=500)
    row = {"running_batch": 8, "max_prefill_bs": 4, "waiting_queue_len": 1}
    assert [group.step(row, row)[0][0] for _ in range(2)] == ["no_wait", "delay"]
    assert group.step(row, row, now=[499.9, 500.1]) == [("wait_success", 1)] * 2


def test_a_timer_runs_out_at_its_limit_and_counts_from_the_first_delay():
    group = ranks(queue_min_ratio=0.5, max_running_requests=64, max_delay_ms=500, max_delay_passes=9)
    clock = [(0, "no_wait"), (100, "delay"), (300, "delay"), (599.9, "delay"), (600, "wait_success"), (601, "delay")]
    assert [group.step(SHORT, SHORT, now=[ms] * 2)[0][0] for ms, _ in clock] == [reason for _, reason in clock]


def test_a_timer_releases_neither_mixed_nor_full_ranks():
    group = ranks(max_delay_ms=0)
    got = [group.step(FULL, IDLE)[0][0], group.step(FULL, IDLE)[0][0]]
    assert got == ["delay", "delay"]


def test_without_dp_attention_each_replica_decides_alone_with_its_share_of_the_slots():
    config = DelayerConfig(dp_size=4, max_delay_passes=3, max_running_requests=9, enable_dp_attention=False)
    assert config.running_limit == 3
    group = Ranks(config)
    row = {"running_batch": 2, "max_prefill_bs": 2}
    assert [group.step(row), group.step(row)] == [[("no_wait", 0)], [("delay", 0)]]


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [("seed", ["delay", "", "delay", "", "delay", ""]), ("hardened", ["delay", "", "delay", "", "wait_timeout", ""])],
)
def test_only_the_hardened_policy_lets_a_flickering_rank_in(policy, reasons):
    group = ranks(policy=policy)
    flicker = [({"running_batch": 1}, IDLE), (IDLE, IDLE)] * 3
    assert [group.step(*rows)[0][0] for rows in flicker] == reasons


@pytest.mark.parametrize("policy", POLICIES)
def test_passes_in_which_nobody_is_prefillable_use_up_no_budget(policy):
    group = ranks(policy=policy)
    assert [group.step(IDLE, IDLE)[0] for _ in range(9)] == [("", 0)] * 9
    assert [group.step({"running_batch": 1}, IDLE)[0][0] for _ in range(3)] == ["delay", "delay", "wait_timeout"]


@pytest.mark.parametrize(("policy", "reason"), [("seed", "delay"), ("hardened", "no_wait")])
@pytest.mark.parametrize("rows", [({}, IDLE), ({"max_prefill_bs": 9}, {"max_prefill_bs": 9})])
def test_only_the_hardened_policy_holds_nothing_while_nobody_decodes(policy, reason, rows):
    group = ranks(policy=policy)
    group.states = [DelayerState(free_pass_used=True)] * 2
    assert group.step(*rows)[0][0] == reason


def test_the_hardened_policy_sees_who_decodes_on_a_rank_that_is_not_prefillable():
    assert ranks(policy="hardened").step({}, IDLE | {"running_batch": 1})[0][0] == "delay"


@pytest.mark.parametrize(("policy", "reason"), [("seed", "delay"), ("hardened", "no_wait")])
def test_only_the_hardened_policy_waits_for_no_more_than_the_free_slots(policy, reason):
    group = ranks(policy=policy, queue_min_ratio=1.0, prefill_max_requests=128)
    group.states = [DelayerState(free_pass_used=True)] * 2
    row = {"running_batch": 6, "max_prefill_bs": 1, "waiting_queue_len": 2}
    assert group.step(row, row)[0][0] == reason


@pytest.mark.parametrize(("policy", "reason"), [("seed", "delay"), ("hardened", "no_wait")])
def test_only_the_hardened_policy_compares_a_rank_with_itself(policy, reason):
    group = ranks(policy=policy)
    group.states = [DelayerState(free_pass_used=True)] * 2
    assert group.step({"running_batch": 7, "max_prefill_bs": 1}, {"max_prefill_bs": 2})[0][0] == reason


@pytest.mark.parametrize(("policy", "reason"), [("seed", "delay"), ("hardened", "no_wait")])
def test_only_the_hardened_policy_counts_a_chunk_in_progress_as_prefillable(policy, reason):
    chunk = IDLE | {"chunk_in_progress": True, "running_batch": 1}
    assert ranks(policy=policy).step(chunk, {"running_batch": 1})[0][0] == reason


def test_ranks_that_are_configured_differently_fail_loudly():
    ours, theirs = (DelayerConfig(dp_size=2, max_delay_passes=n, max_running_requests=8) for n in (3, 4))
    row = {"now_ms": 0.0, "prefillable": True, "token_usage": 1.0}
    table = [make_report(DelayerState(), config, **row) for config in (ours, theirs)]
    with pytest.raises(InvalidInput, match=r"fingerprint 1 .* configure all ranks alike"):
        negotiate(table, DelayerState(), ours, now_ms=0.0)


def test_every_setting_changes_the_fingerprint_and_how_a_number_is_written_does_not():
    base = {"dp_size": 2, "max_delay_passes": 3, "max_running_requests": 8}
    other = {
        "dp_size": 3,
        "max_delay_passes": 4,
        "max_running_requests": 9,
        "max_delay_ms": 1.0,
        "queue_min_ratio": 0.5,
        "prefill_max_requests": 4,
        "token_usage_low_watermark": 0.5,
        "enable_dp_attention": False,
        "policy": "hardened",
    }
    configs = [DelayerConfig(**base | {name: value}) for name, value in other.items()]
    assert len({config.fingerprint for config in [DelayerConfig(**base), *configs]}) == 1 + len(other)
    assert DelayerConfig(**base, max_delay_ms=5000).fingerprint == DelayerConfig(**base).fingerprint


def test_a_rank_of_which_no_counts_are_told_reports_none():
    config = DelayerConfig(dp_size=1, max_delay_passes=3, max_running_requests=8)
    row = make_report(DelayerState(), config, now_ms=0.0, prefillable=False, token_usage=1.0)
    assert (row.running_batch, row.max_prefill_bs, row.waiting_queue_len) == (0, 0, 0)


def test_a_table_of_the_wrong_size_is_refused():
    with pytest.raises(InvalidInput, match="rows in the table is 1: gather 2"):
        ranks().step({})


def test_an_episode_has_a_start_exactly_while_it_is_open():
    with pytest.raises(AssertionError, match="episode opens with its first delay"):
        DelayerState(delayed_passes=1)
    with pytest.raises(AssertionError, match="episode opens with its first delay"):
        DelayerState(started_ms=1.0)


@pytest.mark.parametrize(
    ("attempts", "size"),
    [
        ([], 0),
        ([{"admitted": 20}], 20),
        ([{"queue": 5, "free_slots": 3}], 3),
        ([{"queue": 2, "free_slots": 9}], 2),
        ([{"queue": 5, "free_slots": 0}], 1),
        ([{"admitted": 20}, *[{}] * 400], 20),
        ([{"admitted": 20}, *[{"admitted": 1}] * 15], 20),
        ([{"admitted": 20}, *[{"admitted": 1}] * 16], 1),
        ([{"admitted": 20}, *[{"queue": 1, "free_slots": 1}] * 16], 1),
        ([{"admitted": 20}, *[{"free_slots": 7}] * 16], 20),
    ],
)
def test_the_size_is_the_largest_of_the_last_16_attempts_that_were_not_empty(attempts, size):
    window = RecentAttempts()
    for attempt in attempts:
        window = window.after(**attempt)
    assert window.max_prefill_bs == size


@pytest.mark.parametrize("sizes", [(1,) * 17, (3, 0)])
def test_a_window_holds_at_most_16_attempts_and_no_empty_one(sizes):
    with pytest.raises(AssertionError):
        RecentAttempts(sizes=sizes)


@pytest.mark.parametrize("name", RankReport.__dataclass_fields__)
def test_each_column_of_a_row_has_its_kind(name):
    row = {"prefillable": True, "below_watermark": False, "timer_expired": False, "fingerprint": 0}
    with pytest.raises(InvalidInput, match=f"^{name} is "):
        RankReport(**row | {name: 1.5})
