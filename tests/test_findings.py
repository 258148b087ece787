"""Each finding's script shows its defect on the release, without this project's code."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def shown(script, folder):
    path = DOCS / "findings" / script
    ended = subprocess.run([sys.executable, "-B", str(path), str(folder)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def quoted(script):
    """What the page says the script prints."""
    after = (DOCS / "findings.md").read_text().split(f"python docs/findings/{script}", 1)[1]
    lines = after.split("\n\n")[1].splitlines()
    return "\n".join(line.strip() for line in lines) + "\n"


@pytest.mark.parametrize("version", ["0.5.17", "0.5.21", "0.5.22"])
@pytest.mark.parametrize("script", ["short_last_request.py", "negative_length.py", "unknown_lengths.py"])
def test_a_script_prints_what_the_page_quotes(release_folder, script, version):
    assert shown(script, release_folder(version)) == quoted(script)


@pytest.mark.parametrize(
    ("script", "name", "version"),
    [
        ("sliced_lengths.py", "megatron-core", "0.16.1"),
        ("one_rank_eager.py", "megatron-core", "0.16.1"),
        ("full_graph_passed_over.py", "vllm", "0.27.1"),
        ("modes_changed.py", "vllm", "0.27.1"),
        ("modes_changed.py", "vllm", "0.33.0"),
        ("negative_chunk.py", "vllm", "0.27.1"),
        ("negative_chunk.py", "vllm", "0.33.0"),
        ("padding_factor.py", "transformer-engine", "2.20.2"),
        ("short_sequence.py", "verl", "0.7.0"),
        ("length_bucket.py", "verl", "0.9.1"),
    ],
)
def test_a_script_on_another_engine_prints_what_the_page_quotes(release_folder, script, name, version):
    assert shown(script, release_folder(version, name)) == quoted(script)


def test_the_short_sequence_is_packed_by_the_release_that_mended_it(release_folder):
    mended = shown("short_sequence.py", release_folder("0.9.1", "verl")).splitlines()
    assert [line.partition(": ")[2] for line in mended] == ["rows [[7, 0]]", "rows [[0, 0]]"]


def test_the_full_graph_is_replayed_by_the_release_that_mended_it(release_folder):
    mended = shown("full_graph_passed_over.py", release_folder("0.33.0", "vllm")).splitlines()
    assert [line.partition("runs in ")[2] for line in mended] == ["FULL 6", "PIECEWISE 7"]


def test_the_scripts_use_nothing_of_this_project():
    for script in (DOCS / "findings").glob("*.py"):
        assert "cpbcg" not in script.read_text().replace("cpbcg is used", "")
