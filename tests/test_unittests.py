"""A saved case as a test of SGLang's own suite: red on the release that has the bug, green where it is mended."""

import functools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from upstream import written
from upstream_edits import BROKEN, CONFIG, FULL, LAYOUT, MENDED, QUEUE, SHOULD, batch, both, passes, replay, select

from cpbcg_ref.cases import Attempt, AttemptsCase, CaptureCase, DelayerConfig, LastPassCase, Server, VotesCase
from cpbcg_ref.checking import session
from cpbcg_ref.checking.saved import rebuilt
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.report.unittests import python, unittest_for

HERE = Path(__file__).parent

RED_THEN_GREEN = [
    ("capacity.no-overflow", "0.5.17", "0.5.18", "not less than or equal to"),
    ("replay.admitted-implies-runs", "0.5.17", "0.5.18", "RuntimeError: Live batch needs 12 local CP rows"),
    ("replay.safe-fallback", "0.5.17", "0.5.18", "True is not false"),
    ("delay.bounded-passes", "0.5.16", "0.5.17", "not less than"),
    ("delay.recent-size", "0.5.16", "0.5.18", r"Lists differ: \[0\] != "),
    ("delay.recent-size", "0.5.17", "0.5.18", r"Lists differ: \[0\] != "),
    ("delay.target-capacity", "0.5.18", "0.5.19", "'no_wait'.*'delay'"),
    ("delay.agree", "0.5.21", "0.5.22", "'wait_success'.*'delay'"),
]
STILL_RED = ["capture.legal", "layout.bad-input", "replay.safe-fallback"]  # on 0.5.23


@functools.cache
def violations(version):
    """What a check of a real release finds of these ids."""
    ids = {one[0] for one in RED_THEN_GREEN if one[1] == version} or STILL_RED
    return {result.invariant: result for result in session.check(f"sglang=={version}", ids=sorted(ids)).results}


def found(invariant, version):
    """The case that it finds, and what it says of it."""
    result = violations(version)[invariant]
    return rebuilt(result.counterexample.case, invariant), result.message


def run(file, root):
    """Run it as a person would, in a process of its own."""
    command = [sys.executable, "-B", str(HERE / "upstream.py"), str(root), str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("invariant", "red", "green", "shown"), RED_THEN_GREEN)
def test_a_real_case_fails_on_its_release_and_passes_on_the_first_mended_one(
    release_folder, tmp_path, invariant, red, green, shown
):
    roots = [release_folder(version) for version in (red, green)]
    file = written(tmp_path, invariant, *found(invariant, red))
    before, after = (run(file, root) for root in roots)
    assert before.returncode == 1
    assert re.search(shown, before.stderr), before.stderr
    assert after.returncode == 0, after.stderr


@pytest.mark.parametrize("invariant", STILL_RED)
def test_a_case_that_no_release_has_mended_fails_on_the_latest(release_folder, tmp_path, invariant):
    root = release_folder("0.5.23")
    assert run(written(tmp_path, invariant, *found(invariant, "0.5.23")), root).returncode == 1


RULES = ["--isolated", "--line-length=120", "--target-version=py310"]
LINT = ["--select=E,F,W,I,B,UP,SIM,RET,RUF,C4", "--config=lint.isort.known-first-party=['sglang']"]
PLAIN = {form: entry[0] for form, entry in (BROKEN | SHOULD).items() if entry} | {
    ("AttemptsCase", "delay.recent-size"): AttemptsCase(attempts=(Attempt(admitted=1), Attempt())),
    ("CaptureCase", "capture.legal"): MENDED["capture.legal"][0],
}
OTHERS = [  # of the same forms, but with other branches of their templates
    ("capture.legal", CaptureCase(server=Server(cp_size=2, capture_num_tokens=(5, 12), context_length=11,
                                                strategy="interleave"))),
    ("delay.agree", passes(both(), **CONFIG, enable_dp_attention=False)),
    ("delay.justified", passes(*[both(waiting_queue_len=2**40, max_prefill_bs=2**40, now_ms=1e9)] * 40, **QUEUE)),
    ("delay.justified", passes(both(), both(), **CONFIG, enable_dp_attention=False)),
    ("delay.target-capacity", LastPassCase(config=DelayerConfig(**CONFIG), history=(), last=FULL, other_last=FULL)),
    ("layout.bad-input", MENDED["layout.bad-input"][0]),
    ("layout.causal", replace(LAYOUT, strategy="interleave")),
    ("layout.roundtrip", replace(LAYOUT, strategy="interleave")),
    ("replay.safe-fallback", MENDED["replay.safe-fallback"][0]),
    ("replay.safe-fallback", replay(*[batch(*range(4, 64))] * 3, ladder=tuple(range(4, 400, 4)))),
    ("select.without-cp", replay(batch(3, 12))),
]  # fmt: skip


def test_what_is_written_is_clean_and_without_this_project(tmp_path):
    pytest.importorskip("ruff")
    every = [(invariant, case) for (_, invariant), case in PLAIN.items()] + OTHERS
    for number, (invariant, case) in enumerate(every):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = written(folder, invariant, case, message='it says "no" and \\ """').read_text("utf-8")
        assert "cpbcg_ref" not in text
    for command in (["check", *LINT], ["format", "--check", "--diff"]):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *command[:1], *RULES, *command[1:], "."],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout


def test_the_docstring_says_what_is_seen_where_it_was_reported_and_the_case(tmp_path):
    case = replay(batch(5, 5, 5), ladder=(15,))
    text = written(tmp_path, "capacity.no-overflow", case, "rank 0 needs 12 rows").read_text("utf-8")
    doc = " ".join(text.split('"""')[1].split())
    assert "Live rows on every rank <= rows captured for the bucket that admission implies." in doc
    assert "Seen: rank 0 needs 12 rows" in doc
    assert "Public: sglang#33906" in doc
    assert "Smallest case: ReplayCase(server=Server(cp_size=2, capture_num_tokens=(15,), context_length=64)," in doc
    assert "batches=(Batch(lengths=(5, 5, 5), prefixes=(0, 0, 0)),))" in doc
    assert "cpbcg" in doc


def test_what_has_no_form_is_refused_with_what_there_is():
    votes, seen = VotesCase(mid_chunk=(True,), waiting=(0,)), {"message": "seen"}
    with pytest.raises(CpbcgError, match=r"no unittest for engine 'vllm': tests can be written for sglang"):
        unittest_for(engine="vllm", invariant="agree.mode", case=replay(batch(15)), **seen)
    with pytest.raises(CpbcgError, match=r"delay.chunk-counts with a VotesCase: one can be written for no such case"):
        unittest_for(engine="sglang", invariant="delay.chunk-counts", case=votes, **seen)
    with pytest.raises(CpbcgError, match=r"agree.mode with a SelectCase: .* for select.captured, select.complete,"):
        unittest_for(engine="sglang", invariant="agree.mode", case=select(27, 8, ((32, 8),)), **seen)


def test_a_literal_breaks_only_where_the_line_ends():
    assert python([1, "a", {"b": None}]) == '[1, "a", {"b": None}]'
    assert python([10**39] * 2 + ["x"], 0, 30) == f'[{10**39}, {10**39}, "x"]'
    assert python([10**39] * 2 + ["x"], 0, 31) == f'[\n    {10**39},\n    {10**39},\n    "x",\n]'
