"""The README's commands and the ARCHITECTURE page keep their promises."""

import doctest
import importlib
import importlib.util
import os
import pkgutil
from pathlib import Path

import pytest

import cpbcg_ref

ROOT = Path(__file__).parents[1]


def quick_start(number: int) -> str:
    spec = importlib.util.spec_from_file_location("readme_command", ROOT / ".ci" / "readme_command.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.command((ROOT / "README.md").read_text(), number)


def test_the_first_two_commands_are_one_line_each():
    assert "\n" not in quick_start(1)
    assert "\n" not in quick_start(2)


def test_the_first_command_checks_a_real_release_and_the_second_runs_tox():
    assert "cpbcg check sglang==" in quick_start(1)
    assert quick_start(2).endswith("tox")


def test_the_architecture_page_is_at_most_sixty_lines():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 60


def test_torch_is_the_cpu_build_where_the_suite_runs_in_ci():
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    if not os.environ.get("CI"):
        pytest.skip("outside CI any build of torch will do")
    assert torch.version.cuda is None


@pytest.mark.parametrize("name", [m.name for m in pkgutil.walk_packages(cpbcg_ref.__path__, "cpbcg_ref.")])
def test_the_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_examples_in_the_readme_run():
    text = (ROOT / "README.md").read_text().replace("\n```", "\n\n")
    result = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(text, {}, "README", None, None))
    assert result.attempted
    assert result.failed == 0
