"""The seeded faults of the negotiation are caught by each invariant that their entry names; the variants by none."""

from itertools import groupby

import pytest

from cpbcg_ref.checking.hunting import alike, hunt
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.faults import FAULTS, VARIANTS, negotiation_variants
from cpbcg_ref.invariants import REGISTRY

DELAYING = [key for key, fault in FAULTS.items() if fault.expected[0].startswith("delay.")]
GROUPS = [
    list(keys)
    for _, keys in groupby(sorted(DELAYING, key=lambda k: str(alike(FAULTS[k]))), lambda k: str(alike(FAULTS[k])))
]
EVERY = [name for name in REGISTRY if name.startswith("delay.")]


@pytest.mark.parametrize("keys", GROUPS, ids=lambda keys: keys[0])
def test_each_fault_is_caught_by_each_invariant_named_and_the_right_engine_by_none(keys):
    caught, right = hunt(keys, 0)
    missed = {trial.key: [one.id for one in trial.hunts if not one.found] for trial in caught}
    assert missed == {key: [] for key in keys}
    assert [(one.id, one.found) for one in right.hunts if one.found] == []
    assert right.asked >= max(trial.asked for trial in caught)


OWN = [key for key, one in VARIANTS.items() if one.engine_type.__module__ == negotiation_variants.__name__]


@pytest.mark.parametrize("key", OWN)
def test_a_right_delayer_is_not_even_given_advice(key):
    check = Checker(engine=VARIANTS[key].engine, target=f"variant:{key}", profile="dev", recorded=0).check
    assert {name: (check(name).outcome, check(name).message) for name in EVERY} == dict.fromkeys(EVERY, ("pass", ""))


def test_there_are_as_many_as_were_asked_for():
    assert len(DELAYING) >= 35
    assert sum(bool(FAULTS[key].source) for key in DELAYING) >= 16
    assert len(OWN) >= 4
