"""The seed decides which cases are asked, never the verdict. Nightly: with --seeds 20 these are 200 checks."""

import pytest

from cpbcg_ref.checking import session
from cpbcg_ref.engines import wheels

REFERENCES = ("reference", "reference:hardened")


def verdicts(target, seed):
    return {result.invariant: result.outcome for result in session.check(target, seed=seed, workers=1).results}


def differing(found):
    """{id: {outcome: seeds}} of the ids whose outcome depends on the seed. found: {seed: {id: outcome}}."""
    by_outcome = {}
    for seed, outcomes in found.items():
        for name, outcome in outcomes.items():
            by_outcome.setdefault(name, {}).setdefault(outcome, []).append(seed)
    return {name: outcomes for name, outcomes in by_outcome.items() if len(outcomes) > 1}


def test_an_outcome_that_depends_on_the_seed_is_told_with_its_seeds():
    found = {0: {"a.b": "pass", "c.d": "fail"}, 1: {"a.b": "pass", "c.d": "pass"}, 2: {"a.b": "pass", "c.d": "fail"}}
    assert differing(found) == {"c.d": {"fail": [0, 2], "pass": [1]}}


@pytest.mark.parametrize("target", [*REFERENCES, *(f"sglang=={version}" for version in wheels.pins("sglang"))])
def test_every_seed_gives_the_same_verdicts(request, release, target):
    seeds = range(request.config.getoption("--seeds"))
    if not seeds:
        pytest.skip("nightly: --seeds 20 checks every shipped target with 20 seeds")
    if target not in REFERENCES:
        release(target.removeprefix("sglang=="))
    found = {seed: verdicts(target, seed) for seed in seeds}
    assert len(found[0]) == 44
    assert differing(found) == {}
