"""The words of the negotiation, by hand-computed numbers."""

import pytest

from cpbcg_ref.answers import Raised, Verdict
from cpbcg_ref.cases import Attempt, DelayerConfig, RankReport
from cpbcg_ref.oracles import passes as table


def config(**options) -> DelayerConfig:
    return DelayerConfig(**{"dp_size": 2, "max_delay_passes": 3, "max_running_requests": 64} | options)


def row(prefillable: bool = True, running: int = 0, size: int = 0, waiting: int = 0, **options) -> RankReport:
    return RankReport(
        prefillable=prefillable, running_batch=running, max_prefill_bs=size, waiting_queue_len=waiting, **options
    )


def says(allow: bool = True, episode: bool = False) -> Verdict:
    return Verdict(allow=allow, reason="", wait_passes=0, episode_open=episode, delayed_passes=0, free_pass_used=False)


@pytest.mark.parametrize(
    ("votes", "status"), [((1, 1), "all"), ((0, 0), "none"), ((0, 1), "mixed"), ((1,), "all"), ((0,), "none")]
)
def test_status_is_by_who_is_prefillable(votes, status):
    assert table.status(tuple(row(bool(vote)) for vote in votes)) == status


@pytest.mark.parametrize(
    ("most", "replicas", "attention", "limit"),
    [(9, 2, True, 9), (9, 2, False, 5), (8, 2, False, 4), (1, 4, False, 1), (1024, 3, False, 342)],
)
def test_the_limit_is_per_replica_and_rounded_up_without_dp_attention(most, replicas, attention, limit):
    options = {"max_running_requests": most, "dp_size": replicas, "enable_dp_attention": attention}
    assert table.running_limit(config(**options)) == limit


@pytest.mark.parametrize(("running", "holds"), [(59, False), (60, False), (61, True)])
def test_the_slot_condition_is_strict(running, holds):
    assert table.slot_condition((row(running=running), row(size=4)), config()) is holds


def test_the_slot_condition_mixes_ranks_unless_asked_about_one():
    busy, large = row(running=61, size=0), row(running=0, size=4)
    assert table.slot_condition((busy, large), config())
    assert [table.slot_condition((one,), config()) for one in (busy, large)] == [False, False]
    assert table.slot_condition((row(running=61, size=4),), config())


@pytest.mark.parametrize(
    ("running", "ratio", "cap", "size", "target"),
    [
        (500, 0.02, 128, 1, 10),
        (500, 0.02, None, 1, 1),
        (100, 0.29, 128, 1, 28),  # 28.999999999999996 in floats
        (3, 0.29, 128, 1, 0),
        (8, 0.5, 4, 9, 4),
        (8, 0.5, 3, 9, 3),
        (0, 0.5, 4, 9, 0),
        (8, None, 4, 9, 0),
    ],
)
def test_the_target_is_truncated_and_capped(running, ratio, cap, size, target):
    settings = config(queue_min_ratio=ratio, prefill_max_requests=cap)
    assert table.queue_target((row(running=running), row(size=size)), settings) == target


def test_another_cap_can_be_asked_about():
    settings, reports = config(queue_min_ratio=1.0, prefill_max_requests=2), (row(running=9, size=5, waiting=3),)
    assert table.queue_target(reports, settings) == 2
    assert table.queue_short(reports, settings, capacity=5)
    assert table.queue_may_be_short(reports, settings)
    assert not table.queue_short(reports, settings)
    assert not table.queue_may_be_short((row(running=9, size=3, waiting=3),), settings)
    assert table.queue_may_be_short(
        (row(running=9, size=3, waiting=3),), config(queue_min_ratio=1.0, prefill_max_requests=4)
    )


@pytest.mark.parametrize(("waiting", "short"), [(3, True), (4, False), (5, False)])
def test_the_longest_queue_counts(waiting, short):
    reports = (row(running=8, size=4, waiting=0), row(waiting=waiting))
    assert table.queue_short(reports, config(queue_min_ratio=0.5)) is short


@pytest.mark.parametrize(
    ("prefillable", "usage", "mark", "below"),
    [(True, 0.79, 0.8, True), (True, 0.8, 0.8, False), (False, 0.1, 0.8, False), (True, 0.1, None, False)],
)
def test_only_a_prefillable_rank_strictly_below_the_watermark_counts(prefillable, usage, mark, below):
    report = row(prefillable, token_usage=usage)
    assert table.below_watermark(report, config(token_usage_low_watermark=mark)) is below


@pytest.mark.parametrize(
    ("started", "now", "out"),
    [(0.0, 500.0, True), (0.0, 499.9, False), (None, 9e9, False), (375.1, 875.1, False), (750.1, 1250.1, False)],
)
def test_a_timer_has_run_out_where_milliseconds_and_seconds_agree(started, now, out):
    """The last two elapse 500 ms by one unit and a little less by the other: they are left unjudged."""
    assert table.ran_out(started, now, 500.0) is out


def test_a_timer_starts_with_its_episode_and_stops_with_it():
    passes = [(row(now_ms=float(now)), row(now_ms=float(now + 7))) for now in (0, 10, 20, 30, 40)]
    answers = [says(), says(False, True), says(False, True), says(True, False), says(False, False)]
    steps = list(table.steps(passes, [(answer,) * 2 for answer in answers]))
    assert [step.started for step in steps] == [(None, None), (None, None), (10, 17), (10, 17), (None, None)]
    assert [step.before for step in steps][:2] == [(table.FRESH,) * 2, (says(),) * 2]


def test_a_delay_is_an_episode_whatever_the_engine_calls_it():
    passes = [(row(now_ms=5.0),), (row(now_ms=9.0),)]
    *_, last = table.steps(passes, [(says(False, False),)] * 2)
    assert last.started == (5.0,)


def test_a_trace_ends_where_a_rank_raised():
    boom = Raised("ValueError", "boom", "x.py:1")
    steps = list(table.steps([(row(), row())] * 3, [(says(), says()), (says(), boom), (says(), says())]))
    assert [step.number for step in steps] == [1]


@pytest.mark.parametrize(
    ("attempt", "size"),
    [
        (Attempt(admitted=5, queue=9, free_slots=1), 5),
        (Attempt(queue=9, free_slots=4), 4),
        (Attempt(queue=2, free_slots=4), 2),
        (Attempt(queue=2, free_slots=0), 1),
        (Attempt(free_slots=4), 0),
    ],
)
def test_an_attempt_counts_for_what_it_admitted_or_could_have(attempt, size):
    assert table.attempt_size(attempt) == size


def test_the_window_holds_sixteen_attempts_and_idle_passes_take_no_place():
    busy = [Attempt(admitted=size) for size in range(1, 18)]
    with_idle = [attempt for one in busy for attempt in (one, Attempt())]
    assert table.recent_sizes(with_idle) == list(range(2, 18))
