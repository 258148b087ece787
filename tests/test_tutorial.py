"""docs/writing-an-adapter.md does what it says: its blocks are run in order, and what it shows is what is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "writing-an-adapter.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(commands, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    here = {"PATH": path, "CPBCG_STATE": str(folder / ".state"), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        ["bash", "-c", commands], cwd=folder, env=os.environ | here, capture_output=True, text=True, timeout=300
    )
    return ended.stdout + ended.stderr


def is_shown(printed, shown):
    """`...` is any text."""
    pattern = ".*?".join(map(re.escape, shown.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def test_what_is_shown_has_to_be_all_of_what_is_printed_but_for_dots():
    assert is_shown("a 1\nb\n", "a ...\nb")
    assert not is_shown("a 1\nb\nc", "a ...\nb")
    assert not is_shown("a 1\nc", "a ...\nb")


def test_the_page_can_be_followed_from_the_first_block_to_the_last(tmp_path):
    printed = ""
    for kind, text in BLOCKS:
        if kind == "bash":
            printed = run(text, tmp_path)
        elif kind == "text":
            assert is_shown(printed, text), f"the page shows\n{text}\nprinted was\n{printed}"
        else:
            file = tmp_path / text.split("\n")[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    assert {kind for kind, _ in BLOCKS} == {"python", "bash", "text", "toml", "yaml"}


def test_the_workflow_runs_what_the_page_has_run():
    (workflow,) = (text for kind, text in BLOCKS if kind == "yaml")
    commands = re.findall(r"- run: (.*)", workflow)
    assert commands[0] == "python -m pip install path/to/cpbcg pytest"
    assert set(commands[1:]) <= {line for kind, text in BLOCKS if kind == "bash" for line in text.split("\n")}
