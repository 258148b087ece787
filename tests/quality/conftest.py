"""What a changed checker or oracle is tried on: the reference's answers to some cases of every family."""

from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, reject, seed, settings

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.strategies import cases_for

QUICK = settings(
    max_examples=100, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@cache
def answers_of_the_reference(family):
    """Pairs (case, answers), the same in every run."""
    engine, pairs = Reference(), []

    @seed(0)
    @QUICK
    @given(case=cases_for(family, engine.contract))
    def ask(case):
        try:
            pairs.append((case, FAMILIES[family].ask(engine, case)))
        except CaptureFailed:
            reject()

    ask()
    return pairs


@pytest.fixture(scope="session")
def answered():
    return answers_of_the_reference
