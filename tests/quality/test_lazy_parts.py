"""A checker that always passes, one that always fails, and a generator that lost its interesting cases are noticed."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from cpbcg_ref import cases
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import run
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults import FAULTS
from cpbcg_ref.invariants import REGISTRY

JUDGED = [name for name, one in REGISTRY.items() if all(part.family != "data" for part in one.parts)]
# For each id a fault that names it, first of all ids if there is one.
NAMED = [(name, fault) for fault in FAULTS.values() for name in fault.expected]
CAUGHT_BY = dict(sorted(NAMED, key=lambda named: -named[1].expected.index(named[0])))

WITNESSES = [
    (name, index, witness)
    for name in JUDGED
    for index, part in enumerate(REGISTRY[name].parts)
    for witness in part.demanded(Reference.contract)
]


def judged(engine, name, profile="dev"):
    """The verdict on this invariant alone. It counts as known to fail: then nothing is shrunk."""
    checker = Checker(engine=engine, target=engine.name, profile=profile, known=frozenset({name}), recorded=0)
    for family in dict.fromkeys(part.family for part in REGISTRY[name].parts):
        checker.sweep(family, [name])
    return checker.result(name)


@pytest.fixture
def check_by(monkeypatch):
    """check_by(name, check): every part of this invariant checks like that."""

    def put(name, check):
        parts = tuple(replace(part, check=check) for part in REGISTRY[name].parts)
        monkeypatch.setitem(REGISTRY, name, replace(REGISTRY[name], parts=parts))

    return put


@pytest.fixture
def only_case(monkeypatch):
    """only_case(case): whatever is checked is asked this one case."""

    def put(case):
        def cases_for(family, *_, **__):
            return st.just(case) if FAMILIES[family].case is type(case) else st.nothing()

        monkeypatch.setattr(run, "cases_for", cases_for)

    return put


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_checker_that_always_passes_misses_the_fault_that_it_is_there_for(name, check_by, only_case):
    fault = CAUGHT_BY[name]
    found = judged(fault.engine, name, "ci")
    assert found.outcome == "fail", fault.key
    only_case(eval(found.counterexample.python, vars(cases)))
    assert judged(fault.engine, name).outcome == "fail", fault.key
    check_by(name, lambda *_: None)
    assert judged(fault.engine, name).outcome != "fail", fault.key


@pytest.mark.parametrize("name", JUDGED)
def test_every_invariant_is_there_for_a_fault(name):
    assert [fault.key for fault in FAULTS.values() if name in fault.expected]


@pytest.mark.parametrize("name", JUDGED)
def test_a_checker_that_always_fails_flags_the_reference(name, check_by):
    check_by(name, lambda *_: "never right")
    assert judged(Reference(), name).outcome == "fail"


@pytest.mark.parametrize(("name", "index", "witness"), WITNESSES)
def test_a_generator_that_lost_an_interesting_case_is_no_pass(name, index, witness, only_case, answered):
    part = REGISTRY[name].parts[index]
    only_case(next(case for case, seen in answered(part.family) if not part.witnesses[witness](case, seen)))
    checker = Checker(engine=Reference(), target="reference", profile="dev", known=frozenset({name}), recorded=0)
    checker.sweep(part.family, [name])
    found = checker.judged[name, index]
    assert found.outcome == "unwitnessed"
    assert witness in found.message.partition(": ")[2].split("; ")
