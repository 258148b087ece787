"""The verdicts on published releases equal upstream's own history (docs/findings.md holds the table)."""

import re
from pathlib import Path

import pytest

from cpbcg_ref.checking import session

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"
BOUNDARIES = ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.21", "0.5.22")
IN_CI = ("capacity.no-overflow", "delay.bounded-passes", "delay.target-capacity", "delay.agree")
OUTCOMES = {"red": "fail", ".": "pass", "-": "skip"}


def table():
    """{release: {id: outcome}} as the page says."""
    block = next(block for block in PAGE.read_text().split("\n\n") if block.startswith("| invariant |"))
    lines = [line for line in block.splitlines() if line.startswith("| ")]
    head, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    releases = [cell for cell in head if re.fullmatch(r"\d+\.\d+\.\d+", cell)]
    return {
        release: {name: OUTCOMES[row[at]] for row in rows for name in row[0].split(", ")}
        for at, release in enumerate(releases, start=1)
    }


RELEASES = tuple(table())


def outcomes(version, ids=None, seed=0):
    report = session.check(f"sglang=={version}", ids=ids, seed=seed)
    return {result.invariant: result for result in report.results}


@pytest.mark.parametrize("version", BOUNDARIES)
def test_a_boundary_release_has_the_verdicts_of_upstreams_history(release, version):
    release(version)
    found = {name: result.outcome for name, result in outcomes(version, IN_CI).items()}
    assert found == {name: table()[version][name] for name in IN_CI}


@pytest.mark.parametrize("version", RELEASES)
def test_every_cell_of_every_release_is_as_the_page_says(request, release, version):
    if not request.config.getoption("--every-release"):
        pytest.skip("nightly: --every-release checks all ids of all pinned releases")
    release(version)
    found = outcomes(version, seed=20)
    for name, outcome in table()[version].items():
        assert found[name].outcome == outcome, (name, found[name].message)
    rest = [r for name, r in found.items() if name not in table()[version] and r.level == "MUST"]
    assert {r.outcome for r in rest} <= {"pass", "skip"}, [r for r in rest if r.outcome not in ("pass", "skip")]
