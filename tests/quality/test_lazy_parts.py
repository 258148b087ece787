"""A checker that always passes, one that always fails, and a generator that lost its interesting cases are noticed."""

from dataclasses import replace

import pytest
import toys_dispatch
from hypothesis import strategies as st
from right import PARTS, WITNESSES, answers, engine_for

from cpbcg_ref import cases
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import run
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.faults import FAULTS
from cpbcg_ref.invariants import REGISTRY

# For each id a fault that names it, first of all ids if there is one.
NAMED = [(name, fault) for fault in FAULTS.values() for name in fault.expected]
CAUGHT_BY = dict(sorted(NAMED, key=lambda named: -named[1].expected.index(named[0])))
# For each id of which a part asks about steps, a dispatcher that violates it.
OF_STEPS = {
    "select.fits-tokens": toys_dispatch.OneTooSmall,
    "select.captured": toys_dispatch.BlindToKind,
    "select.minimal": toys_dispatch.Largest,
    "select.complete": toys_dispatch.FewestTokens,
    "select.pure": toys_dispatch.Forgetful,
    "agree.bucket": toys_dispatch.EachForItself,
    "agree.mode": toys_dispatch.EagerWithPrefills,
}
WRONG = {f"{name} {fault.key}": (name, lambda fault=fault: fault.engine) for name, fault in CAUGHT_BY.items()}
WRONG |= {f"{name} {toy.__name__}": (name, toy) for name, toy in OF_STEPS.items()}
WRONG["lengths"] = ("layout.companions", lambda: FAULTS["cumulative-lengths-sliced"].engine)


def checker_of(engine, name, profile="dev"):
    """For this invariant alone. It counts as known to fail: then nothing is shrunk."""
    return Checker(engine=engine, target=engine.name, profile=profile, known=frozenset({name}), recorded=0)


def judged(engine, name, profile="dev"):
    """The verdict on this invariant alone."""
    checker = checker_of(engine, name, profile)
    for family in dict.fromkeys(part.family for part in REGISTRY[name].parts):
        checker.sweep(family, [name])
    return checker.result(name)


def judged_part(engine, name, index):
    """The verdict on one part of this invariant."""
    checker = checker_of(engine, name)
    checker.sweep(REGISTRY[name].parts[index].family, [name])
    return checker.judged[name, index]


@pytest.fixture
def check_by(monkeypatch):
    """check_by(name, check): every part of this invariant checks like that; of several, or the one at `only`."""

    def put(name, check, only=None):
        parts = enumerate(REGISTRY[name].parts)
        changed = tuple(replace(part, check=check) if only in (None, index) else part for index, part in parts)
        monkeypatch.setitem(REGISTRY, name, replace(REGISTRY[name], parts=changed))

    return put


@pytest.fixture
def only_case(monkeypatch):
    """only_case(case): whatever is checked is asked this one case."""

    def put(case):
        def cases_for(family, *_, **__):
            return st.just(case) if FAMILIES[family].case is type(case) else st.nothing()

        monkeypatch.setattr(run, "cases_for", cases_for)

    return put


@pytest.mark.parametrize("key", WRONG)
def test_a_checker_that_always_passes_misses_the_wrong_engine_that_it_is_there_for(key, check_by, only_case):
    name, wrong = WRONG[key]
    found = judged(wrong(), name, "ci")
    assert found.outcome == "fail"
    only_case(eval(found.counterexample.python, vars(cases)))
    assert judged(wrong(), name).outcome == "fail"
    check_by(name, lambda *_: None)
    assert judged(wrong(), name).outcome != "fail"


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in PARTS))
def test_every_invariant_is_there_for_a_fault(name):
    assert [fault.key for fault in FAULTS.values() if name in fault.expected]


def test_every_invariant_of_steps_is_there_for_a_wrong_dispatcher():
    assert {name for name, _, part in PARTS if part.family == "dispatch"} == set(OF_STEPS)


@pytest.mark.parametrize(("name", "index"), [(name, index) for name, index, _ in PARTS])
def test_a_checker_that_always_fails_flags_a_right_engine(name, index, check_by):
    engine = engine_for(REGISTRY[name].parts[index])
    check_by(name, lambda *_: "never right", only=index)
    assert judged_part(engine, name, index).message == "never right"


@pytest.mark.parametrize(("name", "index", "witness"), WITNESSES)
def test_a_generator_that_lost_an_interesting_case_is_no_pass(name, index, witness, only_case):
    part = REGISTRY[name].parts[index]
    engine = engine_for(part, witness)
    seen = answers(engine, part.family)
    only_case(next(case for case, seen in seen if not part.witnesses[witness](case, seen)))
    found = judged_part(engine, name, index)
    assert found.outcome == "unwitnessed"
    assert witness in found.message.partition(": ")[2].split("; ")
