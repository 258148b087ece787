"""The verdicts on releases of other engines are those that docs/findings.md tells."""

from pathlib import Path

import pytest

from cpbcg_ref.checking import session
from cpbcg_ref.engines.targets import ENGINES, installed, released

SLOW = {"vllm": "its wheels have more than 300 MB", "verl:thd-engine": "its nested tensors take 10 s of CPU time"}
PAGE = Path(__file__).parents[1] / "docs" / "findings.md"


def told():
    """{target: red ids} as the page says."""
    block = next(block for block in PAGE.read_text().split("\n\n") if block.startswith("| target |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]
    return {target: set(filter(None, red.split(", "))) for target, red, _ in rows}


def has(name):
    """Is the release installed that an engine without others was tried on."""
    here = installed(name)
    return bool(here) and here[1].partition("+")[0] == ENGINES[name].tried_on


@pytest.mark.parametrize("target", told())
def test_a_release_is_red_where_the_page_says_so_and_nowhere_else(request, release, target):
    name, _, version = target.partition("==")
    if name in SLOW and not request.config.getoption("--every-release"):
        pytest.skip(f"nightly: --every-release checks {name} too ({SLOW[name]})")
    if version:
        release(version, released(name))
    elif not has(name):
        pytest.skip(f"the page speaks of {released(name)} {ENGINES[name].tried_on}, which is not installed")
    results = [result for result in session.check(target).results if result.level == "MUST"]
    assert {result.invariant for result in results if result.outcome == "fail"} == told()[target]
    assert {result.outcome for result in results} <= {"pass", "skip", "fail"}, results
    assert not [result.message for result in results if "the adapter has no" in result.message]
    assert "pass" in {result.outcome for result in results} or told()[target]
