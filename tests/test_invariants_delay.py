"""The delay.* checkers: three hand-computed answers each, golden numbers, and wrong delayers that must be found."""

from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from toys_delay import WRONG, WRONG_WINDOWS, Delayers, Hardened, Toy

from cpbcg_ref.answers import AttemptsSeen, LastPassSeen, PassesSeen, Raised, Verdict, VotesSeen
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import Attempt, AttemptsCase, DelayerConfig, LastPassCase, PassesCase, RankReport, VotesCase
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.strategies.negotiation import attempts_cases, last_pass_cases, passes_cases

BY_ID = {id: one for id, one in REGISTRY.items() if id.startswith("delay.")}
MUST = [id for id, one in BY_ID.items() if one.level == "MUST"]
WEAKNESSES = ["delay.budget", "delay.no-idle-hold", "delay.reachable-target", "delay.own-slots"]
STRATEGIES = {
    "passes": passes_cases(),
    "skewed-passes": passes_cases(skewed=True),
    "last-pass": last_pass_cases(),
    "attempts": attempts_cases(),
}
BOOM = Raised("ValueError", "boom", "engine.py:7")


@cache
def generated(family: str, number: int = 0) -> list:
    cases: list = []

    @seed(number)
    @settings(
        max_examples=200,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[family])
    def collect(case):
        cases.append(case)

    collect()
    return cases


def config(**options) -> DelayerConfig:
    return DelayerConfig(**{"dp_size": 2, "max_delay_passes": 3, "max_running_requests": 64} | options)


def row(prefillable: int = 1, running: int = 0, size: int = 0, waiting: int = 0, now: float = 0.0, usage: float = 1.0):
    return RankReport(
        prefillable=bool(prefillable),
        running_batch=running,
        max_prefill_bs=size,
        waiting_queue_len=waiting,
        now_ms=now,
        token_usage=usage,
    )


def says(reason: str, wait: int = 0, *, delays: int = 0, used: bool = False, allow: bool | None = None) -> Verdict:
    return Verdict(
        allow=reason != "delay" if allow is None else allow,
        reason=reason,
        wait_passes=wait,
        episode_open=delays > 0,
        delayed_passes=delays,
        free_pass_used=used,
    )


def held(delays: int = 1, **options) -> Verdict:
    return says("delay", delays=delays, **options)


def judge(name: str, passes, answers, **options) -> str | None:
    """Verdict on a trace of one or two ranks; a single answer stands for all ranks."""
    passes = tuple(one if isinstance(one, tuple) else (one,) for one in passes)
    seen = tuple(a if isinstance(a, tuple) else (a,) * len(p) for a, p in zip(answers, passes, strict=True))
    case = PassesCase(config=config(**options), passes=passes)
    return BY_ID[name].parts[0].check(case, PassesSeen(passes=seen), None)


def judge_last(name: str, last, other, answer, other_answer, **options) -> str | None:
    case = LastPassCase(config=config(**options), history=(), last=(last,), other_last=(other,))
    return BY_ID[name].parts[0].check(case, LastPassSeen(last=(answer,), other_last=(other_answer,)), None)


# literal answers ----------------------------------------------------------------------------------------------------

SLOTS = row(running=61, size=4)  # 3 free slots of 64 for a size of 4
QUEUE = row(running=8, size=4, waiting=1)  # with ratio 0.5: target 4
FREE = row(running=8, size=4, waiting=9)
NO = row(0)


def test_agree_accepts_equal_verdicts_and_local_clocks():
    passes = [(row(now=0.0), row(now=900.0))] * 2
    assert judge("delay.agree", passes, [says("no_wait"), held(2, used=True)]) is None


def test_agree_names_both_verdicts_and_both_clocks():
    passes = [(row(now=499.9), row(now=500.1))]
    sentence = judge("delay.agree", passes, [(held(), says("wait_success", 1))], max_delay_ms=500.0)
    assert sentence == "pass 1: rank 0 delay, rank 1 wait_success (clocks 499.9, 500.1, limit 500 ms)"


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (held(2), "delayed_passes is 1 on rank 0 and 2 on rank 1"),
        (held(used=True), "free_pass_used is False on rank 0 and True on rank 1"),
        (held(wait=1), "wait_passes is 0 on rank 0 and 1 on rank 1"),
    ],
)
def test_agree_covers_what_the_ranks_carry_into_the_next_pass(other, part):
    assert part in judge("delay.agree", [(SLOTS, SLOTS)], [(held(), other)])


def test_bounded_passes_lets_a_rank_wait_for_less_than_the_bound():
    assert judge("delay.bounded-passes", [SLOTS] * 3, [held(1), held(2), says("wait_timeout", 2)]) is None


def test_bounded_passes_counts_consecutive_passes_of_one_rank():
    passes, answers = [(SLOTS, NO), (SLOTS, NO), (NO, SLOTS), (NO, SLOTS)], [held(1), held(2), held(3), held(4)]
    assert judge("delay.bounded-passes", passes, answers) is None
    sentence = judge("delay.bounded-passes", [*passes, (NO, SLOTS)], [*answers, held(5)])
    assert sentence == "pass 5: rank 1 was prefillable in 3 consecutive passes (bound 3) and never allowed"


@pytest.mark.parametrize("bound", [0, 1])
def test_bounded_passes_allows_no_delay_at_all_below_two(bound):
    sentence = judge("delay.bounded-passes", [SLOTS], [held()], max_delay_passes=bound)
    assert sentence == f"pass 1: rank 0 was prefillable in 1 consecutive passes (bound {bound}) and never allowed"


TIMED = {"queue_min_ratio": 0.5, "max_delay_ms": 500.0, "max_delay_passes": 9}


def queue_at(*times: float) -> list[RankReport]:
    return [row(running=8, size=4, waiting=1, now=now) for now in times]


def test_bounded_time_forbids_a_delay_from_the_limit_on():
    assert judge("delay.bounded-time", queue_at(0, 499.9), [held(1), held(2)], **TIMED) is None
    sentence = judge("delay.bounded-time", queue_at(0, 499.9, 500), [held(1), held(2), held(3)], **TIMED)
    assert sentence == "pass 3: rank 0 is delayed although rank 0's timer had run out (0 to 500 ms, limit 500 ms)"


def test_bounded_time_starts_anew_with_each_episode():
    answers = [held(1), says("wait_success", 1), held(1), held(2)]
    assert judge("delay.bounded-time", queue_at(0, 400, 450, 900), answers, **TIMED) is None


@pytest.mark.parametrize("late", [(row(running=61, size=4, now=900),), (row(now=900), row(0, now=900))])
def test_bounded_time_leaves_slot_and_mixed_delays_to_the_passes(late):
    first = tuple(row(running=8, size=4, waiting=1) for _ in late)
    assert judge("delay.bounded-time", [first, late], [held(1), held(2)], **TIMED) is None


@pytest.mark.parametrize("reports", [(SLOTS,), (QUEUE,), (FREE, NO)])
def test_justified_accepts_slots_queue_and_mixed(reports):
    assert judge("delay.justified", [reports], [held()], queue_min_ratio=0.5) is None


def test_justified_names_slots_and_target():
    sentence = judge("delay.justified", [FREE], [held()], queue_min_ratio=0.5)
    assert sentence == "pass 1: rank 0 is delayed at 56 free slots for size 4, waiting 9 of target 4"


def test_justified_knows_no_reason_when_nobody_is_prefillable():
    assert "no rank is prefillable" in judge("delay.justified", [NO], [held()])


def test_target_capacity_compares_two_sizes_under_a_configured_cap():
    small, large = (row(running=500, size=size, waiting=1) for size in (1, 128))
    options = {"max_running_requests": 1024, "queue_min_ratio": 0.02, "prefill_max_requests": 128}
    sentence = judge_last("delay.target-capacity", small, large, says("no_wait"), held(), **options)
    assert sentence == "no_wait at max_prefill_bs 1, delay at 128, prefill_max_requests 128"
    assert judge_last("delay.target-capacity", small, large, held(), held(), **options) is None


def test_target_capacity_leaves_a_size_alone_that_moves_the_slot_condition():
    small, large = (row(running=62, size=size, waiting=1) for size in (1, 4))
    options = {"queue_min_ratio": 0.5, "prefill_max_requests": 128}
    assert judge_last("delay.target-capacity", small, large, says("no_wait"), held(), **options) is None


def test_target_capacity_without_a_configured_cap_is_the_observed_maximum():
    low, high = (row(running=32, size=4, waiting=waiting) for waiting in (3, 4))
    assert judge_last("delay.target-capacity", low, high, held(), says("no_wait"), queue_min_ratio=0.5) is None
    sentence = judge_last("delay.target-capacity", low, high, held(), held(), queue_min_ratio=0.5)
    assert sentence == "delayed with 4 waiting although the target is capped by max_prefill_bs 4"


@pytest.mark.parametrize(
    ("sizes", "answers", "wrong"),
    [
        ((20, 0, 0), (20, 20, 20), None),
        ((20, *(1,) * 16), (*(20,) * 16, 1), None),
        (
            (20, 0),
            (20, 19),
            "pass 2: max_prefill_bs is 19 after an idle pass, not 20, the largest of the last 1 attempts",
        ),
        (
            (20, *(1,) * 16),
            (20,) * 17,
            "pass 17: max_prefill_bs is 20 after an attempt of 1, not 1, the largest of the last 16 attempts",
        ),
        ((1,), (0,), "pass 1: max_prefill_bs is 0 after an attempt of 1, not 1, the largest of the last 1 attempts"),
        ((1,), (BOOM,), "pass 1: raised ValueError: boom (engine.py:7)"),
    ],
)
def test_recent_size_is_the_largest_of_sixteen_attempts(sizes, answers, wrong):
    case = AttemptsCase(attempts=tuple(Attempt(admitted=size) for size in sizes))
    assert BY_ID["delay.recent-size"].parts[0].check(case, AttemptsSeen(max_prefill_bs=answers), None) == wrong


def test_recent_size_is_not_judged_before_the_first_attempt():
    case = AttemptsCase(attempts=(Attempt(), Attempt(admitted=2)))
    assert BY_ID["delay.recent-size"].parts[0].check(case, AttemptsSeen(max_prefill_bs=(1, 2)), None) is None


def test_recent_size_counts_a_rejected_attempt_without_slots_as_one():
    case = AttemptsCase(attempts=(Attempt(queue=9, free_slots=0),))
    assert BY_ID["delay.recent-size"].parts[0].check(case, AttemptsSeen(max_prefill_bs=(1,)), None) is None


def test_watermark_forbids_a_delay_below_it_and_not_on_it():
    def delayed_at(usage, prefillable=1):
        passes = [(SLOTS, row(prefillable, usage=usage))]
        return judge("delay.watermark", passes, [held()], token_usage_low_watermark=0.8)

    assert delayed_at(0.8) is None
    assert delayed_at(0.5, prefillable=0) is None
    equal = [(SLOTS, row(1, usage=0.8))]
    assert judge("delay.watermark", equal, [says("token_watermark")], token_usage_low_watermark=0.8) == (
        "pass 1: rank 0 says token_watermark, no prefillable rank is below 0.8 (usage 1.0, 0.8)"
    )
    assert delayed_at(0.5) == (
        "pass 1: rank 0 is delayed although rank 1 uses 0.5 of its tokens, below the watermark 0.8"
    )


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ([held(1), held(2), says("wait_timeout", 2)], None),
        ([held(1), says("wait_success", 1)], None),
        ([held(1), held(2), says("token_watermark", 2)], None),
        ([says("token_watermark"), says("no_wait")], None),
        (
            [held(1), says("wait_success", 0)],
            "pass 2: rank 0 reports wait_success after 0 passes: it waited at least 1",
        ),
        ([says("no_wait", 1)], "pass 1: rank 0 reports no_wait after 1 passes, not 0 (bound 3)"),
        (
            [held(1), says("wait_success", 1), says("wait_success", 1)],
            "pass 3: rank 0 says wait_success after 1 passes, it was delayed in 0 since its last release",
        ),
        ([held(1), says("wait_success", 1), held(1), says("wait_success", 1)], None),
        ([held(1), says("wait_timeout", 1)], "pass 2: rank 0 reports wait_timeout after 1 passes, not 2 (bound 3)"),
        ([held(1), says("token_watermark")], "pass 2: rank 0 reports token_watermark after 0 passes, not 1 (bound 3)"),
        ([held(allow=True)], "pass 1: rank 0 says 'delay' and allows"),
        ([says("no_wait", allow=False)], "pass 1: rank 0 says 'no_wait' and does not allow"),
        ([says("")], "pass 1: rank 0 gives no reason in status all"),
        ([says("later")], "pass 1: rank 0 gives the unknown reason 'later'"),
        ([BOOM], "pass 1: rank 0 raised ValueError: boom (engine.py:7)"),
    ],
)
def test_reason_and_reported_wait_fit(answers, wrong):
    assert judge("delay.reason", [SLOTS] * len(answers), answers) == wrong


def test_reason_may_be_empty_only_when_nobody_is_prefillable():
    assert judge("delay.reason", [NO], [says("")]) is None


def test_a_wait_may_go_on_behind_a_pass_without_a_reason():
    kept = [held(1), says("", 1), says("wait_success", 1)]
    assert judge("delay.reason", [SLOTS, NO, SLOTS], kept) is None


def test_skip_first_is_taken_once_and_together():
    once = [says("no_wait", used=True), held(used=True)]
    assert judge("delay.skip-first", [SLOTS, SLOTS], once) is None
    assert judge("delay.skip-first", [SLOTS, SLOTS], [once[0], held()]) == (
        "pass 2: the free pass was used and is unused again: [True] then [False]"
    )
    assert judge("delay.skip-first", [(SLOTS, SLOTS)], [(once[0], says("no_wait"))]) == (
        "pass 1: the free pass is taken on some ranks only: [True, False]"
    )


@pytest.mark.parametrize(
    ("reports", "part"),
    [
        ((SLOTS, NO), "a pass of status mixed used up the free pass"),
        ((NO, NO), "a pass of status none used up the free pass"),
        ((SLOTS, row(usage=0.1)), "a release by the watermark used up the free pass"),
        ((FREE, FREE), "there was no reason to wait"),
    ],
)
def test_skip_first_is_not_used_up_by_other_releases(reports, part):
    options = {"token_usage_low_watermark": 0.8, "queue_min_ratio": 0.5}
    assert part in judge("delay.skip-first", [reports], [says("no_wait", used=True)], **options)


def test_monotone_compares_shorter_with_longer_queues():
    short, long = QUEUE, row(running=8, size=4, waiting=4)
    sentence = "queues [1] -> [4] turned no_wait into delay on rank 0"
    assert judge_last("delay.monotone", short, long, held(), says("no_wait")) is None
    assert judge_last("delay.monotone", short, long, says("no_wait"), held()) == sentence
    assert judge_last("delay.monotone", long, short, held(), says("no_wait")) == sentence


def test_monotone_says_nothing_where_something_else_differs():
    assert judge_last("delay.monotone", QUEUE, row(running=9, size=4, waiting=4), says("no_wait"), held()) is None


def test_budget_is_not_restarted_by_an_empty_pass():
    passes, answers = [SLOTS, NO, SLOTS], [held(1), says(""), says("wait_timeout", 1)]
    assert judge("delay.budget", passes, answers, max_delay_passes=2) is None
    sentence = judge("delay.budget", passes, [held(1), says(""), held(1)], max_delay_passes=2)
    assert sentence == "passes 1 to 3: rank 0 was held in 2 passes (bound 2) with 1 empty passes between"


def test_budget_is_not_used_up_by_empty_passes():
    passes = [NO] * 10 + [SLOTS]
    sentence = judge("delay.budget", passes, [says("")] * 10 + [says("wait_timeout", 9)], max_delay_passes=10)
    assert sentence == "pass 11: rank 0 times out after 0 delays and 10 empty passes (bound 10)"


@pytest.mark.parametrize("end", [held(3), says("wait_timeout", 2), says("wait_timeout", 0)])
def test_budget_leaves_a_trace_without_empty_passes_to_the_other_bounds(end):
    assert (
        judge("delay.budget", [SLOTS] * 2, [held(1), end], max_delay_passes=2 if end.reason == "delay" else 3) is None
    )


def test_no_idle_hold_looks_at_what_every_rank_runs():
    assert judge("delay.no-idle-hold", [(row(waiting=1), row(0, running=1))], [held()]) is None
    assert judge("delay.no-idle-hold", [(row(waiting=1), NO)], [says("no_wait")]) is None
    sentence = judge("delay.no-idle-hold", [(row(waiting=1), NO)], [held()])
    assert sentence == "pass 1: rank 0 is delayed in status mixed although nobody decodes"


def test_reachable_target_is_judged_by_a_queue_that_fills_the_free_slots():
    options = {"queue_min_ratio": 0.5, "prefill_max_requests": 128}
    below, full = (row(running=60, size=4, waiting=waiting) for waiting in (3, 4))
    assert judge("delay.reachable-target", [below], [held()], **options) is None
    assert judge("delay.reachable-target", [SLOTS], [held()], **options) is None
    sentence = judge("delay.reachable-target", [full], [held()], **options)
    assert sentence == "pass 1: rank 0 is delayed although rank 0 has 4 waiting for 4 free slots (target 30)"


def test_own_slots_finds_two_ranks_numbers_in_one_comparison():
    busy, large = row(running=61), row(size=4)
    assert judge("delay.own-slots", [(SLOTS, large)], [held()]) is None
    assert judge("delay.own-slots", [(busy, large)], [says("no_wait")]) is None
    sentence = judge("delay.own-slots", [(busy, large)], [held()])
    assert sentence == "pass 1: rank 0 is delayed although running 61 and size 4 of 64 slots are of different ranks"


@pytest.mark.parametrize(("chunks", "votes", "found"), [((1, 0), (1, 0), 0), ((0, 0), (0, 0), 0), ((1, 0), (0, 1), 1)])
def test_a_chunk_in_progress_counts_as_prefillable(chunks, votes, found):
    case = VotesCase(mid_chunk=tuple(map(bool, chunks)), waiting=(1, 1))
    sentence = BY_ID["delay.chunk-counts"].parts[0].check(case, VotesSeen(prefillable=tuple(map(bool, votes))), None)
    assert bool(sentence) is bool(found)


@pytest.mark.parametrize(
    "name", [id for id, one in BY_ID.items() if one.parts[0].family in ("passes", "skewed-passes")]
)
def test_a_rank_that_raises_has_no_verdict(name):
    assert judge(name, [(FREE, FREE)], [(says("no_wait"), BOOM)]) == (
        "pass 1: rank 1 raised ValueError: boom (engine.py:7)"
    )


@pytest.mark.parametrize("answers", [(says("no_wait"), BOOM), (BOOM, says("no_wait"))])
@pytest.mark.parametrize("name", ["delay.target-capacity", "delay.monotone"])
def test_a_last_pass_that_raises_has_no_verdict(name, answers):
    assert judge_last(name, QUEUE, FREE, *answers) == "pass 1: rank 0 raised ValueError: boom (engine.py:7)"


# golden numbers, on the toy that the rest of this file trusts ---------------------------------------------------------


def replay(passes, **options) -> list[list[tuple[str, int]]]:
    case = PassesCase(config=config(**options), passes=tuple(passes))
    return [[(v.reason, v.wait_passes) for v in step] for step in FAMILIES["passes"].ask(Toy(), case).passes]


def test_golden_target_of_the_configured_cap():
    report = row(running=500, size=1, waiting=1, usage=0.9)
    options = {"dp_size": 4, "max_running_requests": 1024, "queue_min_ratio": 0.02, "token_usage_low_watermark": 0.8}
    assert replay([(report,) * 4] * 2, prefill_max_requests=128, **options) == [
        [("no_wait", 0)] * 4,
        [("delay", 0)] * 4,
    ]
    assert replay([(report,) * 4] * 2, **options) == [[("no_wait", 0)] * 4] * 2


def test_golden_clocks_on_both_sides_of_the_limit():
    options = {"queue_min_ratio": 0.5, "prefill_max_requests": 4, "max_delay_ms": 500.0}
    passes = [tuple(row(running=8, size=4, waiting=1, now=t) for t in now) for now in ((0, 0), (0, 0), (499.9, 500.1))]
    assert replay(passes, **options)[2] == [("wait_success", 1)] * 2


def test_golden_bound_gives_14_allows_in_40_passes():
    options = {"dp_size": 1, "max_running_requests": 128}
    verdicts = [verdict for (verdict,) in replay([(row(running=100, size=80),)] * 40, **options)]
    assert verdicts[:4] == [("no_wait", 0), ("delay", 0), ("delay", 0), ("wait_timeout", 2)]
    assert sum(reason != "delay" for reason, _ in verdicts) == 14


def test_golden_mixed_passes():
    assert replay([(FREE, NO)] * 3)[2] == [("wait_timeout", 2)] * 2
    assert replay([(FREE, NO), (FREE, FREE)], max_delay_passes=2)[1] == [("wait_success", 1)] * 2
    assert [replay([(FREE, NO)], max_delay_passes=bound)[0][0] for bound in (0, 1)] == [("wait_timeout", 0)] * 2


# engines ------------------------------------------------------------------------------------------------------------


def first_found(name: str, engine: Toy, number: int = 0) -> int | None:
    """How many generated cases it takes to find the engine wrong."""
    part = BY_ID[name].parts[0]
    for count, case in enumerate(generated(part.family, number), start=1):
        if part.check(case, FAMILIES[part.family].ask(engine, case), engine.contract):
            return count
    return None


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_delayer_is_found_within_200_cases(wrong):
    name, group = WRONG[wrong]
    assert first_found(name, Toy(group)) is not None


@pytest.mark.parametrize("rule", WRONG_WINDOWS)
def test_a_wrong_window_is_found_within_200_cases(rule):
    assert first_found("delay.recent-size", Toy(window=rule)) is not None


@pytest.mark.parametrize("name", WEAKNESSES)
def test_the_policy_of_the_specification_has_each_known_weakness(name):
    assert first_found(name, Toy()) is not None


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", MUST)
def test_the_policy_of_the_specification_breaks_no_must(name, number):
    assert first_found(name, Toy(), number) is None


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", MUST + WEAKNESSES)
def test_a_better_policy_breaks_nothing(name, number):
    assert first_found(name, Toy(Hardened), number) is None


@pytest.mark.parametrize("group", [Delayers, Hardened])
@pytest.mark.parametrize("name", MUST + WEAKNESSES)
def test_every_witness_comes_up_within_200_cases(name, group):
    part, engine = BY_ID[name].parts[0], Toy(group)
    unmet = dict(part.witnesses)
    assert unmet, f"{name} has no witness"
    for case in generated(part.family):
        seen = FAMILIES[part.family].ask(engine, case)
        unmet = {label: witness for label, witness in unmet.items() if not witness(case, seen)}
    assert not unmet


def test_one_wrong_clock_makes_one_red_cell():
    """Clocks differ between ranks for delay.agree alone."""
    found = [name for name in MUST if first_found(name, Toy(WRONG["LocalClock"][1]))]
    assert found == ["delay.agree"]


@pytest.mark.parametrize("wrong", ["UnboundedAll", "CappedByObservedSize", "ClearedWait", "NoTimer"])
def test_one_public_bug_makes_one_red_cell(wrong):
    name, group = WRONG[wrong]
    assert [must for must in MUST if first_found(must, Toy(group))] == [name]
