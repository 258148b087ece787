"""Changes of the core where mutmut makes none: properties, defaults of fields, constants of classes and modules."""

import configparser
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
TESTS = SETTINGS["pytest_add_cli_args_test_selection"]
CHANGES = [
    ("layout", "multiple = 2  #", "multiple = 3  #"),
    ("layout", "multiple = 1\n", "multiple = 2\n"),
    ("layout", 'needs = "the batch has', 'needs = "every batch has'),
    ("layout", '"zigzag": Zigzag(), "interleave": Interleave()', '"interleave": Interleave(), "zigzag": Zigzag()'),
    ("capture", 'strategy: str = "zigzag"\n', 'strategy: str = "interleave"\n'),
    ("capture", "alignment: int | None = None", "alignment: int | None = 1"),
    ("capture", "max_padding_factor: float = 2", "max_padding_factor: float = 3"),
    ("capture", "min_replay_bucket: int = 0", "min_replay_bucket: int = 64"),
    ("capture", "supports: frozenset[str] = frozenset()", 'supports: frozenset[str] = frozenset({"logprobs"})'),
    ("capture", '"strategy": self.strategy}', '"strategy": "zigzag"}'),
    ("capture", '{"cp_size": self.cp_size, ', '{"cp_size": 4, '),
    ("delayer", "WINDOW = 16 ", "WINDOW = 17 "),
    ("delayer", "max_delay_ms: float = 5000.0", "max_delay_ms: float = 5001.0"),
    ("delayer", "queue_min_ratio: float | None = None", "queue_min_ratio: float | None = 0.5"),
    ("delayer", "prefill_max_requests: int | None = None", "prefill_max_requests: int | None = 1"),
    ("delayer", "token_usage_low_watermark: float | None = None", "token_usage_low_watermark: float | None = 2.0"),
    ("delayer", "enable_dp_attention: bool = True", "enable_dp_attention: bool = False"),
    ("delayer", 'policy: str = "seed"', 'policy: str = "hardened"'),
    ("delayer", "if self.enable_dp_attention else", "if not self.enable_dp_attention else"),
    ("delayer", "-(-self.max_running_requests // self.dp_size)", "self.max_running_requests // self.dp_size"),
    ("delayer", "float(v) if type(v) is int else v", "v"),
    ("delayer", "for v in astuple(self)]", "for v in astuple(self)[1:]]"),
    ("delayer", "max(self.sizes, default=0)", "max(self.sizes, default=1)"),
    ("delayer", "max(self.sizes, default=0)", "min(self.sizes, default=0)"),
    ("delayer", "delayed_passes: int = 0", "delayed_passes: int = 1"),
    ("delayer", "started_ms: float | None = None", "started_ms: float | None = 0.0"),
    ("delayer", "free_pass_used: bool = False", "free_pass_used: bool = True"),
    ("delayer", "running_batch: int = 0", "running_batch: int = 1"),
    ("delayer", "max_prefill_bs: int = 0", "max_prefill_bs: int = 1"),
    ("delayer", "waiting_queue_len: int = 0", "waiting_queue_len: int = 1"),
    ("delayer", "wait_passes: int = 0", "wait_passes: int = 1"),
    ("delayer", "sizes: tuple[int, ...] = ()", "sizes: tuple[int, ...] = (1,)"),
]
CLASSES = [
    (name, "@dataclass(frozen=True, kw_only=True)", "@dataclass(kw_only=True)") for name in ("capture", "replay")
]


def test_all_tests_of_the_core_take_part_in_mutation_and_coverage():
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert tox["core"]["tests"].split() == TESTS
    assert set(TESTS) >= {f"tests/{path.name}" for path in ROOT.glob("tests/test_core_*.py")}
    assert tox["coverage:run"]["include"].split() == SETTINGS["only_mutate"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory, request):
    """A copy of the core and its tests."""
    if not request.config.getoption("--every-release"):
        pytest.skip("a minute long: run by `tox -e mutation`, or with --every-release")
    folder = tmp_path_factory.mktemp("copy")
    for name in ("cpbcg_ref", "tests", "properties"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "quality"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def outcome(folder):
    """Exit code of the core's tests on this copy: 0 all pass, 1 some fail."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
    surroundings = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True).returncode


def test_the_copy_passes_unchanged(copy):
    assert outcome(copy) == 0


@pytest.mark.parametrize(("module", "old", "new"), CHANGES + CLASSES)
def test_a_changed_value_is_noticed(copy, module, old, new):
    file = copy / "cpbcg_ref" / f"{module}.py"
    right = file.read_text()
    assert right.count(old) == 1
    file.write_text(right.replace(old, new))
    try:
        assert outcome(copy) in (1, 2)  # 2: a table of the tests cannot be built at all
    finally:
        file.write_text(right)
