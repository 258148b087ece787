"""Every planted defect is caught by each check that it names, and nothing is found without one."""

import pytest

from cpbcg_ref.engines.reference import Reference
from gpu_conformance.plants import PLANTS
from gpu_conformance.session import Asked, groups, results, serve


def outcomes(**asked):
    """id -> outcome of lockstep groups with few batches."""
    served = [serve(group, Reference()) for group in groups(Asked(driver="lockstep", batches=12, **asked))]
    return {result.invariant: result.outcome for result in results(served)}


@pytest.mark.parametrize("cp_size", [2, 4, 8])
def test_the_reference_violates_nothing(cp_size):
    assert set(outcomes(cp_sizes=(cp_size,)).values()) == {"pass"}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_defect_is_caught_by_the_checks_it_names(name):
    found = outcomes(cp_sizes=(2,), plant=name)
    assert {found[invariant] for invariant in PLANTS[name].caught_by} == {"fail"}


def test_the_overflow_is_seen_in_the_data_too():
    assert outcomes(cp_sizes=(4,), plant="token-only-selection")["data.replay-equals-eager"] == "fail"
