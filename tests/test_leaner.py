"""A shrunk case keeps no pass and no attempt that its violation does without."""

from cpbcg_ref.cases import Attempt, AttemptsCase, Batch, DelayerConfig, LastPassCase, LayoutCase, RankReport
from cpbcg_ref.checking.family import FamilyRun, PartRun, Violation
from cpbcg_ref.checking.smaller import leaner
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.invariants.model import Part, not_excluded

CASE = AttemptsCase(attempts=tuple(Attempt(admitted=size) for size in (5, 1, 7, 2, 7)))
CONFIG = DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=1)
PASS = (RankReport(prefillable=True),)


def sizes(case):
    return [attempt.admitted for attempt in case.attempts]


def left_of(case, wrong):
    def check(one, seen, contract):
        return "wrong" if wrong(sizes(one)) else None

    part = Part(family="attempts", check=check, needs=(), excluded=not_excluded, witnesses={})
    run = PartRun(part=part, violation=Violation("wrong", case, None))
    FamilyRun(engine=Reference(), family="attempts", strategy=None, profile="dev", executed=set()).trim(run)
    return sizes(run.violation.case)


def test_what_is_left_is_wrong_and_no_longer_wrong_with_anything_left_out():
    assert left_of(CASE, lambda told: sum(told) > 12) == [7, 7]
    assert left_of(CASE, lambda told: 1 in told and told[-1] == 7) == [1, 7]


def test_a_case_that_breaks_the_adapter_is_not_a_smaller_one():
    def breaks(told):
        if 5 not in told:
            raise ValueError("no such device")
        return True

    assert left_of(CASE, breaks) == [5]


def test_the_last_pass_of_a_run_is_never_left_out_and_the_last_of_a_history_may_be():
    assert list(leaner(AttemptsCase(attempts=(Attempt(),)))) == []
    pair = {"config": CONFIG, "last": PASS, "other_last": PASS}
    assert list(leaner(LastPassCase(history=(PASS,), **pair))) == [LastPassCase(history=(), **pair)]


def test_a_case_without_a_sequence_stays_as_it_is():
    assert list(leaner(LayoutCase(cp_size=1, batch=Batch(lengths=(4,), prefixes=(0,))))) == []
