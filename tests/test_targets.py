"""Target strings, with a toy engine beside the real names."""

import dataclasses
import importlib.metadata
import os
import pkgutil
import sys

import pytest

from cpbcg_ref.engines import targets, wheels
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.engines.targets import Engine, resolve
from cpbcg_ref.errors import TargetError

ADAPTER = """
from cpbcg_ref.engines.contract import Contract

class Mine:
    name, version, contract, roots = "mine", "7", Contract(), ()

    class Inner:
        name, version, contract = "inner", "7", Contract()

class Broken:
    def __init__(self):
        raise ValueError("no such device")

class Quits:
    def __init__(self):
        raise SystemExit(0)

class NoContract:
    name, version = "mine", "7"

class NoVersion:
    name, version, contract = "mine", 7, Contract()
"""


@dataclasses.dataclass
class Toy:
    package_root: object
    version: str
    name = "toy"
    contract = Contract()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory; what a target adds to the import path and the modules goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def toy(here, monkeypatch):
    """An engine named toy-engine whose package is the folder toy."""
    monkeypatch.setitem(targets.ENGINES, "toy-engine", Engine(f"{__name__}:Toy", "toy"))
    return here


def make_tree(folder, **files):
    (folder / "toy" / "deep").mkdir(parents=True)
    (folder / "toy" / "deep" / "leaf.py").touch()
    for name, text in files.items():
        (folder / "toy" / f"{name}.py").write_text(text)


def refusal(target):
    with pytest.raises(TargetError) as caught:
        resolve(target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("given", ["clone", "clone/python", "clone/python/toy", "clone/python/../python/", "~/clone"])
def test_a_clone_is_found_from_its_root_its_python_folder_or_the_package(toy, monkeypatch, given):
    monkeypatch.setenv("HOME", str(toy))
    monkeypatch.setenv("USERPROFILE", str(toy))
    make_tree(toy / "clone" / "python")
    assert resolve(f"toy-engine@{given}").package_root == toy / "clone" / "python"


def test_a_package_without_a_python_folder_is_found_from_its_parent_and_from_here(toy):
    make_tree(toy / "tree")
    assert resolve("toy-engine@tree").package_root == toy / "tree"
    make_tree(toy)
    assert resolve("toy-engine@.").package_root == toy


def test_a_clone_that_has_the_name_of_the_package_is_not_taken_for_the_package(toy):
    make_tree(toy / "toy" / "python")
    assert resolve("toy-engine@toy").package_root == toy / "toy" / "python"


def test_a_folder_without_the_package_is_refused_with_all_places_that_were_looked_at(toy):
    (toy / "tree" / "toy").mkdir(parents=True)
    assert refusal("toy-engine@tree") == (
        f"toy-engine@tree: no Python files in {toy}/tree/toy or {toy}/tree/python/toy: "
        "name the repository root, its python/ or toy/"
    )


def test_a_tree_needs_a_name_even_where_one_lies_here(toy):
    make_tree(toy)
    assert "toy-engine@: no Python files in " in refusal("toy-engine@")


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"_version": "version: str\n__version__ = version = '0.5.24.dev3'\n"}, "0.5.24.dev3"),
        ({"version": '__version__ = "1.2"\n'}, "1.2"),
        ({"version": "raise SystemExit\ntry:\n    __version__ = '0'\nexcept E:\n    pass\n"}, None),
        ({}, None),
    ],
)
def test_the_version_of_a_tree_is_read_and_never_executed(toy, files, version):
    make_tree(toy / "tree", **files)
    assert resolve("toy-engine@tree").version == (version or f"unknown ({toy / 'tree'})")


def test_the_version_of_an_unpacked_wheel_comes_from_its_metadata(toy):
    make_tree(toy / "tree")
    (toy / "tree" / "toy_engine-3.4.dist-info").mkdir()
    (toy / "tree" / "toy_engine-3.4.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nVersion: 3.4\n")
    assert resolve("toy-engine@tree").version == "3.4"


def install(folder):
    make_tree(folder, __init__="raise AssertionError('the package was executed')")
    (folder / "toy_engine-2.0.dist-info").mkdir()
    (folder / "toy_engine-2.0.dist-info" / "METADATA").write_text("Name: toy-engine\nVersion: 2.0\n")


def test_an_installed_engine_is_found_without_executing_it(toy, monkeypatch):
    install(toy / "site")
    monkeypatch.syspath_prepend(str(toy / "site"))
    found = resolve("toy-engine")
    assert (found.package_root, found.version) == (toy / "site", "2.0")
    none = {"pinned": [], "cached": [], "tried_on": None}
    assert targets.known_engines()[-1] == {"name": "toy-engine", "installed": "2.0", **none}


@pytest.fixture
def below(here, monkeypatch):
    """An engine whose package lies in a folder without __init__.py: in `tree` unpacked, in `site` installed."""
    monkeypatch.setitem(targets.ENGINES, "space-toy", Engine(f"{__name__}:Toy", "space/toy"))
    for folder in (here / "tree" / "space", here / "site" / "space"):
        make_tree(folder, __init__="")
        (folder.parent / "space_toy-3.0.dist-info").mkdir()
        (folder.parent / "space_toy-3.0.dist-info" / "METADATA").write_text("Name: space-toy\nVersion: 3.0\n")
    return here


@pytest.mark.parametrize("given", ["tree", "tree/space/toy"])
def test_a_package_in_a_folder_that_is_none_is_found_in_a_tree(below, given):
    found = resolve(f"space-toy@{given}")
    assert (found.package_root, found.version) == (below / "tree", "3.0")


def test_a_package_in_a_folder_that_is_none_is_found_where_it_is_installed(below, monkeypatch):
    assert "space-toy is not installed" in refusal("space-toy")
    monkeypatch.syspath_prepend(str(below / "site"))
    found = resolve("space-toy")
    assert (found.package_root, found.version) == (below / "site", "3.0")


@pytest.fixture
def variant(toy, monkeypatch):
    """Another name for the same toy, installed."""
    install(toy / "site")
    monkeypatch.syspath_prepend(str(toy / "site"))
    monkeypatch.setitem(targets.ENGINES, "toy-engine:other", Engine(f"{__name__}:Toy", "toy"))
    return toy


def test_two_names_of_one_release_share_it(variant, monkeypatch):
    asked = []
    monkeypatch.setattr(wheels, "fetch", lambda *args, **options: asked.append(args) or variant)
    assert resolve("toy-engine:other").version == "2.0"
    assert resolve("toy-engine:other@site").version == "2.0"
    assert resolve("toy-engine:other==1.0").version == "1.0"
    assert asked == [("toy-engine", "1.0")]
    assert targets.known_engines()[-1]["name"] == "toy-engine:other"


@pytest.mark.parametrize("rest", ["==2.0", "==LATEST", "@site"])
def test_an_engine_that_is_checked_as_it_is_installed_has_no_releases_and_no_trees(variant, monkeypatch, rest):
    monkeypatch.setitem(targets.ENGINES, "toy-engine:other", Engine(f"{__name__}:Toy", "toy", tried_on="2.0"))
    assert refusal(f"toy-engine:other{rest}") == (
        f"'toy-engine:other{rest}': toy-engine is checked as it is installed in {sys.prefix}: write toy-engine:other"
    )
    assert targets.supported_range("toy-engine:other") == "2.0"


def test_where_torch_is_not_installed_its_command_is_told(here, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refusal("torch:per-document") == f"torch is not installed in {sys.prefix}: pip install 'cpbcg[torch]'"


def test_an_engine_that_is_not_installed_is_refused_with_the_other_ways(toy):
    assert refusal("toy-engine") == (
        f"toy-engine is not installed in {sys.prefix}: name a release (toy-engine==V) or a tree (toy-engine@DIR)"
    )


def test_a_clone_in_the_import_path_is_no_installation(toy, monkeypatch):
    make_tree(toy / "toy" / "python")
    monkeypatch.syspath_prepend(str(toy))
    assert "is not installed" in refusal("toy-engine")


def test_a_package_without_metadata_but_with_code_counts_as_installed(toy, monkeypatch):
    make_tree(toy / "site", __init__="", version="__version__ = '5'")
    monkeypatch.syspath_prepend(str(toy / "site"))
    assert resolve("toy-engine").version == "5"


def test_a_release_is_fetched_and_its_number_is_the_version(toy, monkeypatch):
    asked = []

    def fetch(*args, **options):
        asked.append((args, options))
        return toy

    monkeypatch.setattr(wheels, "fetch", fetch)
    found = resolve("toy-engine==1.0rc1", allow_unpinned=True, progress=print)
    assert (found.package_root, found.version) == (toy, "1.0rc1")
    assert asked == [(("toy-engine", "1.0rc1"), {"allow_unpinned": True, "progress": print})]


@pytest.mark.parametrize("version", ["", "latest", "0.5.*", "0.5.18 --pre", "../0.5", "\u0663.0", "1\n--index-url=x"])
def test_what_is_not_one_release_never_reaches_pip(toy, monkeypatch, version):
    monkeypatch.setattr(wheels, "fetch", lambda *args, **options: pytest.fail("fetched"))
    assert "is not one release, write a number such as toy-engine==1.0 or LATEST" in refusal(f"toy-engine=={version}")


def test_latest_is_the_newest_release_that_is_pinned_and_it_is_said_which(toy, monkeypatch):
    monkeypatch.setattr(wheels, "pins", lambda name: {"1.9": None, "1.10": None} if name == "toy-engine" else {})
    monkeypatch.setattr(wheels, "fetch", lambda *args, **options: toy)
    told = []
    assert resolve("toy-engine==LATEST", progress=told.append).version == "1.10"
    assert told == ["toy-engine==LATEST is toy-engine==1.10, the newest release with a known sha256"]
    assert targets.exact("toy-engine==LATEST") == "toy-engine==1.10"
    for target in ("toy-engine==1.9", "toy-engine@LATEST", "reference", "a/b.py:C", "stranger==LATEST"):
        assert targets.exact(target) == target


def test_without_a_pinned_release_there_is_no_latest(toy, monkeypatch):
    assert refusal("toy-engine==LATEST").endswith("so none is the latest: write its number")


@pytest.mark.parametrize("engine", targets.ENGINES.values())
def test_the_adapter_of_every_engine_is_there_and_needs_nothing_to_be_found(engine):
    assert callable(pkgutil.resolve_name(engine.adapter))


def test_a_release_that_is_not_pinned_is_refused_unless_allowed(here):
    assert "sglang==0.0.1 is not a release with a known sha256" in refusal("sglang==0.0.1")


def test_an_adapter_that_fails_on_an_unknown_release_is_one_line_with_the_supported_range(toy, monkeypatch):
    def moved(package_root, version):
        raise AttributeError("no capture_prepare")

    make_tree(toy)
    monkeypatch.setattr(f"{__name__}.Toy", moved)
    monkeypatch.setattr(targets, "supported_range", lambda name: "1.0 to 2.0")
    assert refusal("toy-engine@.") == (
        "toy-engine@.: AttributeError: no capture_prepare (the adapter was made for 1.0 to 2.0)"
    )


def test_what_an_adapter_explains_itself_is_told_with_the_supported_range(toy, monkeypatch):
    def refuses(package_root, version):
        raise TargetError("capture_prepare has moved")

    make_tree(toy)
    monkeypatch.setattr(f"{__name__}.Toy", refuses)
    monkeypatch.setattr(targets, "supported_range", lambda name: "1.0 to 2.0")
    assert refusal("toy-engine@.") == "toy-engine@.: capture_prepare has moved (the adapter was made for 1.0 to 2.0)"


def test_a_missing_torch_is_told_with_the_command_that_installs_it(toy, monkeypatch):
    def needs_torch(package_root, version):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    make_tree(toy)
    monkeypatch.setattr(f"{__name__}.Toy", needs_torch)
    assert "pip install 'cpbcg[torch]'" in refusal("toy-engine@.")


@pytest.mark.parametrize("target", ["adapters/mine.py:Mine", "./adapters/mine.py:Mine", "{here}/adapters/mine.py:Mine"])
def test_an_adapter_in_a_file_is_made_without_arguments(here, target):
    (here / "adapters").mkdir()
    (here / "adapters" / "mine.py").write_text(ADAPTER)
    assert resolve(target.format(here=here)).name == "mine"
    assert not (here / "adapters" / "__pycache__").exists()


def test_an_adapter_in_a_module_is_found_from_the_working_directory(here):
    (here / "my_adapters").mkdir()
    (here / "my_adapters" / "mine.py").write_text(ADAPTER)
    assert resolve("my_adapters.mine:Mine").name == "mine"
    assert resolve("my_adapters.mine:Mine.Inner").name == "inner"


def test_an_adapter_written_a_moment_ago_is_found_although_the_folder_was_listed_before(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    assert "importing fresh " in refusal("fresh:Mine")
    listed = here.stat()
    (here / "fresh.py").write_text(ADAPTER)
    os.utime(here, ns=(listed.st_atime_ns, listed.st_mtime_ns))
    assert resolve("fresh:Mine").name == "mine"


def test_an_adapter_file_can_import_its_neighbours_and_holds_dataclasses(here):
    (here / "adapters").mkdir()
    (here / "adapters" / "neighbour_of_mine.py").write_text(ADAPTER)
    (here / "adapters" / "mine.py").write_text(
        "from dataclasses import dataclass\nimport neighbour_of_mine\n"
        "@dataclass\nclass Mine(neighbour_of_mine.Mine):\n    ranks: 'int' = 4\n"
    )
    assert resolve("adapters/mine.py:Mine").ranks == 4


def test_an_adapter_file_that_was_edited_at_once_is_read_again(here):
    for version in ("7", "8"):
        (here / "mine.py").write_text(ADAPTER.replace('"7"', f'"{version}"'))
        assert resolve("mine.py:Mine").version == version


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("mine.py:Nope", "'mine.py:Nope': no Nope in cpbcg_target_mine, it has Mine, Broken, Quits, NoContract"),
        ("mine:Nope", "'mine:Nope': no Nope in mine, it has Mine, Broken"),
        ("gone/mine.py:Mine", "'gone/mine.py:Mine': there is no file {here}/gone/mine.py"),
        ("gone.mine:Mine", "'gone.mine:Mine': importing gone.mine (also from {here}) raised ModuleNotFoundError: "),
        ("mine.txt/x:Mine", "'mine.txt/x:Mine': there is no file {here}/mine.txt/x"),
        ("./notes:Mine", "'./notes:Mine': no Mine in cpbcg_target_notes, it has none"),
        ("bad.py:Mine", "'bad.py:Mine': running {here}/bad.py raised SyntaxError: "),
        ("quits.py:Mine", "'quits.py:Mine': running {here}/quits.py raised SystemExit: 0"),
        ("mine.py:Broken", "'mine.py:Broken': Broken() raised ValueError: no such device"),
        ("mine.py:Quits", "'mine.py:Quits': Quits() raised SystemExit: 0"),
        (
            "mine.py:NoContract",
            "'mine.py:NoContract': the object has no contract (Contract), see cpbcg_ref.engines.contract",
        ),
        ("mine.py:NoVersion", "'mine.py:NoVersion': the object has no version (str), see cpbcg_ref.engines.contract"),
        (
            "mine.py",
            "unknown target 'mine.py': the forms are reference, NAME, NAME==VERSION, NAME@DIR, path/to/file.py",
        ),
        ("mine.py:", "unknown target 'mine.py:'"),
        (":Mine", "unknown target ':Mine'"),
        ("", "unknown target ''"),
        ("sglan", "unknown target 'sglan': the forms are "),
        ("sglan==0.5.18", "unknown target 'sglan==0.5.18': the forms are "),
        ("sglan@.", "unknown target 'sglan@.': the forms are "),
        ("sglan@.:x", "unknown target 'sglan@.:x': the forms are "),
        ("reference==", "unknown target 'reference=='"),
        ("reference==1", "unknown target 'reference==1'"),
        ("sglang:hardened", "unknown target 'sglang:hardened': the forms are "),
    ],
)
def test_what_cannot_be_obtained_says_why_in_one_line(here, target, text):
    (here / "mine.py").write_text(ADAPTER)
    (here / "bad.py").write_text("class Mine\n")
    (here / "quits.py").write_text("raise SystemExit(0)\n")
    (here / "notes").write_text("")
    assert refusal(target).startswith(text.format(here=here))


def test_the_reference_and_its_hardened_variant_have_names():
    plain, hardened = resolve("reference"), resolve("reference:hardened")
    assert (plain.name, plain.policy) == ("reference", "seed")
    assert (hardened.name, hardened.policy) == ("reference-hardened", "hardened")


def test_the_known_engines_have_pins_and_say_what_is_cached(here, monkeypatch):
    monkeypatch.setenv("CPBCG_CACHE", str(here))
    folder = wheels.cache_folder("sglang", "0.5.18")
    folder.mkdir(parents=True)
    pin = wheels.pins("sglang")["0.5.18"]
    (folder / "cpbcg.json").write_text(f'{{"file": "{pin.file}", "sha256": "{pin.sha256}"}}')
    engines = {engine["name"]: engine for engine in targets.known_engines()}
    none = {"pinned": [], "cached": [], "tried_on": None}
    assert engines["reference"] == {"name": "reference", "installed": Reference.version, **none}
    assert engines["torch:per-document"]["tried_on"] == "2.13.0"
    assert engines["sglang"]["cached"] == ["0.5.18"]
    assert (engines["sglang"]["pinned"][0], engines["sglang"]["pinned"][-1]) == ("0.5.16", "0.5.23")


def test_the_supported_range_is_the_pinned_one():
    assert targets.supported_range("sglang") == "0.5.16 to 0.5.23"
    assert targets.supported_range("megatron-core") == "0.16.1"
    assert targets.supported_range("torch:per-document") == "2.13.0"


def test_an_engine_without_a_known_release_has_no_supported_range(toy):
    assert targets.supported_range("toy-engine") == "no release"


def test_the_installed_version_agrees_with_this_environment():
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        version = None
    assert {engine["name"]: engine["installed"] for engine in targets.known_engines()}["sglang"] == version
