"""The failures shown in the README are what the command prints today on those releases."""

import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def printed_failure(version, invariant):
    """What `cpbcg check` prints about one violated invariant, from its first line through the reproduce command."""
    command = [sys.executable, "-m", "cpbcg_ref.cli", "check", f"sglang=={version}", "--select", invariant]
    ended = subprocess.run([*command, "--seed", "0"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1, ended.stderr
    block = ended.stdout[ended.stdout.index(f"FAIL {invariant}: ") :]
    end = block.index("\n", block.index("  reproduce:\n    cpbcg check ") + len("  reproduce:\n"))
    return block[:end]


@pytest.mark.parametrize(
    ("version", "invariant"),
    [("0.5.17", "capacity.no-overflow"), ("0.5.18", "delay.target-capacity"), ("0.5.21", "delay.agree")],
)
def test_a_failure_in_the_readme_is_what_the_check_prints(release, version, invariant):
    release(version)
    block = printed_failure(version, invariant)
    assert len(block.split("\n")[0]) < 100
    assert block in README.read_text(encoding="utf-8")
