"""What `tox -e mutation` accepts, and that the list of survivors speaks of functions that are there."""

import importlib
from operator import attrgetter

import mutation
import pytest

SURVIVOR = ("layout.Zigzag.loads", "count = [1] * blocks")
ROW = "| `layout.Zigzag.loads` | `count = [1] * blocks` | The sum takes them off again. |\n"
ALIVE = {SURVIVOR: "survived"}


@pytest.mark.parametrize(
    ("killed", "alive", "text", "problem"),
    [
        (950, ALIVE, ROW, None),
        (949, ALIVE, ROW, "less than 95 % of the mutants are killed"),
        (999, ALIVE, "", "survived, not in mutation.md: layout.Zigzag.loads: count = [1] * blocks"),
        (999, ALIVE, ROW.replace("The sum takes them off again.", ""), "survived, not in mutation.md"),
        (999, {}, ROW, "in mutation.md, yet killed: layout.Zigzag.loads: count = [1] * blocks"),
        (999, {SURVIVOR: "timeout"}, "", "timeout, not in mutation.md: layout.Zigzag.loads: count = [1] * blocks"),
    ],
)
def test_what_keeps_a_mutation_run_from_passing(killed, alive, text, problem):
    found = mutation.problems({"killed": killed, "total": 1000}, alive, text)
    assert len(found) == (problem is not None)
    assert all(one.startswith(problem) for one in found)


@pytest.mark.parametrize(
    ("name", "diff", "mutant"),
    [
        ("cpbcg_ref.layout.xǁZigzagǁloads__mutmut_6", "--- a\n+++ b\n-x\n+    count = [1] * blocks\n", SURVIVOR),
        (
            "cpbcg_ref.errors.x_check_tokens__mutmut_24",
            "+++ b\n+    if a(\n+        b\n",
            ("errors.check_tokens", "if a( b"),
        ),
    ],
)
def test_a_mutant_is_known_by_its_function_and_its_changed_line(monkeypatch, name, diff, mutant):
    monkeypatch.setattr(mutation, "mutmut", lambda *arguments: diff)
    assert mutation.mutated(name) == mutant


@pytest.mark.parametrize(("function", "line"), mutation.listed(mutation.LIST.read_text(encoding="utf-8")))
def test_a_listed_survivor_is_of_a_function_of_the_core(function, line):
    module, _, name = function.partition(".")
    assert callable(attrgetter(name)(importlib.import_module(f"cpbcg_ref.{module}")))
