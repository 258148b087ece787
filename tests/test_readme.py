"""The README's commands and the ARCHITECTURE page keep their promises."""

import importlib.util
from pathlib import Path

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


def test_torch_is_the_cpu_build_where_the_suite_runs_in_ci(monkeypatch):
    torch = __import__("pytest").importorskip("torch", reason="the torch extra is not installed")
    import os

    if os.environ.get("CI"):
        assert torch.version.cuda is None
