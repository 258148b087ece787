"""A verdict does not hang on the seed: 20 of 20 seeds say the same of every shipped target, on every id."""

from collections import Counter

import pytest

from cpbcg_ref.checking import session
from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import ENGINES, REFERENCES, released
from cpbcg_ref.invariants import REGISTRY

SEEDS = 20
NIGHTLY = {"vllm"}  # too large to be fetched here
RELEASES = [f"{name}=={version}" for name in ENGINES if name not in NIGHTLY for version in wheels.pins(released(name))]
INSTALLED = [name for name in ENGINES if not wheels.pins(released(name))]


@pytest.mark.parametrize("target", [*REFERENCES, *RELEASES, *INSTALLED])
def test_twenty_seeds_say_the_same(target, release_folder, request):
    if not request.config.getoption("--every-release"):
        pytest.skip("minutes long: run by `tox -e seeds`, or with --every-release")
    name, _, version = target.partition("==")
    if version:
        release_folder(version, released(name))
    if target in INSTALLED:
        pytest.importorskip(ENGINES[name].package, reason="this engine is checked as it is installed")
    said = {name: Counter() for name in REGISTRY}
    for seed in range(SEEDS):
        for result in session.check(target, seed=seed).results:
            said[result.invariant][result.outcome] += 1
    assert {name: outcomes for name, outcomes in said.items() if len(outcomes) > 1} == {}
