"""No case smaller than its entry says shows a seeded fault of the negotiation: told by exhaustive search."""

from functools import partial

import pytest
from small_passes import smallest_attempts, smallest_last_pass, smallest_passes, smallest_votes

from cpbcg_ref.faults import FAULTS
from cpbcg_ref.invariants import REGISTRY

SEARCH = {
    "passes": smallest_passes,
    "skewed-passes": partial(smallest_passes, skewed=True),
    "last-pass": smallest_last_pass,
    "attempts": smallest_attempts,
    "votes": smallest_votes,
}
DELAYING = [key for key, fault in FAULTS.items() if fault.expected[0].startswith("delay.")]
QUICK = [key for key in DELAYING if FAULTS[key].smallest < 3]


def searched(key):
    fault = FAULTS[key]
    (part,) = REGISTRY[fault.expected[0]].parts
    return SEARCH[part.family](fault.engine, part.check, fault.smallest + 1)


@pytest.mark.parametrize("key", DELAYING)
def test_no_smaller_case_shows_the_fault(request, key):
    if key not in QUICK and not request.config.getoption("--every-release"):
        pytest.skip("takes seconds: asked for with --every-release")
    assert searched(key) == FAULTS[key].smallest
