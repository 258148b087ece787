"""A verdict does not hang on the seed: 20 of 20 seeds say the same of every shipped target, on every id."""

from collections import Counter

import pytest

from cpbcg_ref.checking import session
from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import REFERENCES
from cpbcg_ref.invariants import REGISTRY

SEEDS = 20


@pytest.mark.parametrize("target", [*REFERENCES, *(f"sglang=={version}" for version in wheels.pins("sglang"))])
def test_twenty_seeds_say_the_same(target, release_folder, request):
    if not request.config.getoption("--every-release"):
        pytest.skip("minutes long: run by `tox -e seeds`, or with --every-release")
    if target not in REFERENCES:
        release_folder(target.partition("==")[2])
    said = {name: Counter() for name in REGISTRY}
    for seed in range(SEEDS):
        for result in session.check(target, seed=seed).results:
            said[result.invariant][result.outcome] += 1
    assert {name: outcomes for name, outcomes in said.items() if len(outcomes) > 1} == {}
