"""The layer stands on the suite, never the other way round; only the command and its report know click and rich."""

import ast
import sys
from pathlib import Path

import pytest

import cpbcg_ref
import gpu_conformance

LAYER = sorted(Path(gpu_conformance.__file__).parent.glob("*.py"))
SUITE = sorted(Path(cpbcg_ref.__file__).parent.rglob("*.py"))
FOR_PEOPLE = {"__main__.py": {"click"}, "report.py": {"rich"}}


def imported(path):
    """Names of all modules imported anywhere in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


@pytest.mark.parametrize("path", LAYER, ids=lambda path: path.name)
def test_the_layer_needs_torch_the_suite_and_the_standard_library(path):
    tops = {name.split(".")[0] for name in imported(path)} - sys.stdlib_module_names
    assert tops <= {"torch", "cpbcg_ref", "gpu_conformance"} | FOR_PEOPLE.get(path.name, set())


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.name)
def test_the_suite_imports_nothing_of_the_layer(path):
    """What plants its defects finds it by name, where it is there."""
    assert not {name for name in imported(path) if name.split(".")[0] == "gpu_conformance"}


@pytest.mark.parametrize("path", LAYER, ids=lambda path: path.name)
def test_what_ranks_run_does_not_know_how_runs_are_judged_and_told(path):
    later = ["scenarios.py", "witnesses.py", "verdicts.py", "session.py", "report.py", "__main__.py"]
    stage = later.index(path.name) if path.name in later else -1
    downstream = {f"gpu_conformance.{name.removesuffix('.py')}" for name in later[stage + 1 :]}
    assert not downstream & set(imported(path))
