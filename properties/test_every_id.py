"""The sentences in this folder and the registry of invariants are the same list."""

import ast
from pathlib import Path

from cpbcg_ref.invariants import REGISTRY


def ids_named_in(function):
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [call.args[0].value for call in calls if call.func.id == "holds"]


def sentences():
    """(test name, ids that it asks for) of every test in this folder that takes `holds`."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and "holds" in [arg.arg for arg in node.args.args]:
                yield node.name, ids_named_in(node)


def test_every_invariant_has_a_sentence_here_and_every_sentence_has_an_invariant():
    named = [name for _, ids in sentences() for name in ids]
    assert sorted(named) == sorted(REGISTRY)


def test_each_sentence_names_one_invariant():
    assert [name for name, ids in sentences() if len(ids) != 1] == []
