"""The import rules of ARCHITECTURE.md, read off the source of every module."""

import ast
import sys
from pathlib import Path

import pytest

import cpbcg_ref

PACKAGE = Path(cpbcg_ref.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
CORE = ("errors", "layout", "capture", "replay", "delayer")  # each may import those on its left
HEAVY = {
    "hypothesis": ("strategies/", "checking/"),
    "torch": ("engines/",),
    "numpy": ("engines/", "batched.py", "sweeping/"),
    "distributed": ("sweeping/",),
    "click": ("cli.py", "commands/", "report/"),
    "rich": ("cli.py", "report/"),
    "pytest": (),
    "platformdirs": ("engines/", "checking/"),
    "redis": ("checking/",),
    "z3": ("proving/",),
}


def imports(path: Path) -> list[tuple[str, bool]]:
    """(dotted name, at module level) of every import in a file."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in tree.body) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(f"{node.module}.{alias.name}", node in tree.body) for alias in node.names]
    return found


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_the_standard_library_and_downwards_only(name):
    path = PACKAGE / f"{name}.py"
    allowed = {f"cpbcg_ref.{other}" for other in CORE[: CORE.index(name)]}
    for imported, _ in imports(path):
        top = imported.split(".")[0]
        if top == "cpbcg_ref":
            assert ".".join(imported.split(".")[:2]) in allowed, f"{name}.py imports {imported}"
        else:
            assert top in sys.stdlib_module_names, f"{name}.py imports {imported}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "ladder").glob("*.py")), ids=relative)
def test_the_ladder_imports_the_standard_library_and_the_core(path):
    allowed = {f"cpbcg_ref.{name}" for name in (*CORE, "ladder")}
    for imported, _ in imports(path):
        at_home = ".".join(imported.split(".")[:2]) in allowed
        assert at_home or imported.split(".")[0] in sys.stdlib_module_names, f"{relative(path)} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_oracles_and_invariants_never_import_the_core(path):
    if relative(path).startswith(("oracles/", "invariants/")):
        core = {f"cpbcg_ref.{name}" for name in CORE if name != "errors"}
        reached = {".".join(name.split(".")[:2]) for name, _ in imports(path)}
        assert not reached & core
        assert not {name for name, _ in imports(path) if name.startswith("cpbcg_ref.engines.reference")}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_heavy_packages_are_imported_only_where_the_rules_say(path):
    for imported, _ in imports(path):
        rooms = HEAVY.get(imported.split(".")[0])
        assert rooms is None or relative(path).startswith(rooms), f"{relative(path)} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_torch_and_numpy_are_imported_lazily(path):
    early = [name for name, top_level in imports(path) if top_level and name.split(".")[0] in ("torch", "numpy")]
    assert not early or relative(path).startswith(("batched.py", "sweeping/"))  # which say that they need NumPy


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_proofs_are_imported_by_their_command_alone_when_it_runs(path):
    found = [top_level for name, top_level in imports(path) if name.startswith("cpbcg_ref.proving")]
    assert (
        relative(path).startswith("proving/")
        or not found
        or (relative(path), any(found)) == ("commands/prove.py", False)
    )


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_strategies_and_checkers_do_not_import_what_is_downstream(path):
    """Data flows one way: cases and answers, then oracles and invariants, then checking, then reports, then the CLI."""
    order = ["oracles/", "invariants/", "strategies/", "checking/", "sweeping/", "proving/"]
    order += ["report/", "testing.py", "commands/", "cli.py"]
    stage = next((index for index, room in enumerate(order) if relative(path).startswith(room)), None)
    if stage is None:
        return
    downstream = tuple(f"cpbcg_ref.{room.rstrip('/').removesuffix('.py')}" for room in order[stage + 1 :])
    flowing_back = [name for name, _ in imports(path) if downstream and name.startswith(downstream)]
    assert not flowing_back
