"""The matrix that is stored in docs/: whole, the same in both forms, and of one mind with the findings."""

import re
from pathlib import Path

import pytest
from page import Page
from test_natural_experiment import table
from test_other_engines import told

from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import ENGINES, released
from cpbcg_ref.invariants import REGISTRY

DOCS = Path(__file__).parents[1] / "docs"


def word(cell):
    """Of a link its text, of bold text itself."""
    return re.sub(r"\[(.*)\]\(.*\)", r"\1", cell.strip()).strip("*").replace("\\", "")


def stored():
    """{column: {id: outcome}} of matrix.md."""
    lines = [line for line in (DOCS / "matrix.md").read_text().splitlines() if line.startswith("| ")]
    head, *rows = [[word(cell) for cell in line[2:].split("|")] for line in lines]
    ids = [row[0].split()[0] for row in rows]
    return {
        name: dict(zip(ids, (row[at].lower() for row in rows), strict=True))
        for at, name in enumerate(head[1:-1], start=1)
    }


def test_it_has_every_invariant_and_every_engine_and_release_that_is_known():
    names = {f"{engine.replace(':', '-')} {version}" for engine in ENGINES for version in wheels.pins(released(engine))}
    alone = {engine.replace(":", "-") for engine in ENGINES if ENGINES[engine].tried_on}
    assert names | {"reference 0.1.0", "reference-hardened 0.1.0"} <= set(stored())
    assert {column.split()[0] for column in stored()} >= alone
    assert all(list(column) == list(REGISTRY) for column in stored().values())


def test_no_check_broke_and_every_interesting_case_came_up():
    outcomes = {outcome for column in stored().values() for outcome in column.values()}
    assert outcomes == {"pass", "fail", "skip"}


def test_the_page_holds_the_same_cells():
    page = Page((DOCS / "matrix.html").read_text())
    cells = [one.attributes["data-outcome"] for one in page.all("td") if "data-outcome" in one.attributes]
    columns = stored().values()
    assert cells == [column[name] for name in REGISTRY for column in columns]


@pytest.mark.parametrize("version", table())
def test_a_red_cell_of_the_findings_is_red_here_and_no_other_must_is(version):
    column = stored()[f"sglang {version}"]
    assert {name: column[name] for name in table()[version]} == table()[version]
    assert red(column) <= {*table()[version]}


def test_of_every_engine_that_is_stored_the_findings_explain_what_is_red():
    explained = {target.replace(":", "-"): ids for target, ids in told().items()}
    for name, column in stored().items():
        engine, version = name.split()
        if engine != "sglang":
            assert red(column) == (explained.get(f"{engine}=={version}") or explained.get(engine) or set()), name


def red(column):
    return {name for name, outcome in column.items() if outcome == "fail" and REGISTRY[name].level == "MUST"}
