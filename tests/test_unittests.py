"""A saved case as a test of SGLang's own suite: red on the release that has the bug, green where it is mended."""

import functools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import upstream

from cpbcg_ref.cases import (
    Attempt,
    AttemptsCase,
    BadLayoutCase,
    Batch,
    CaptureCase,
    DelayerConfig,
    LastPassCase,
    LayoutCase,
    PassesCase,
    RankReport,
    ReplayCase,
    SelectCase,
    SelectPairCase,
    Server,
    VotesCase,
)
from cpbcg_ref.checking import session
from cpbcg_ref.engines.unittests import forms, python, unittest_for
from cpbcg_ref.errors import CpbcgError

HERE = Path(__file__).parent
RUNNER, DELAYER = "model_executor/runner/prefill_cuda_graph_runner.py", "managers/prefill_delayer.py"
ZIGZAG, INTERLEAVE, BUCKETS = "layers/cp/zigzag.py", "layers/cp/interleave.py", "layers/cp/bcg/bcg.py"

RED_THEN_GREEN = [
    ("capacity.no-overflow", "0.5.17", "0.5.18", "9 not less than or equal to 8"),
    ("replay.admitted-implies-runs", "0.5.17", "0.5.18", "RuntimeError: Live batch needs 12 local CP rows"),
    ("replay.safe-fallback", "0.5.17", "0.5.18", "True is not false"),
    ("delay.bounded-passes", "0.5.16", "0.5.17", "3 not less than 3"),
    ("delay.recent-size", "0.5.16", "0.5.18", r"\[0\] != \[1\]"),
    ("delay.recent-size", "0.5.17", "0.5.18", r"\[0\] != \[1\]"),
    ("delay.target-capacity", "0.5.18", "0.5.19", "'no_wait'.*'delay'"),
    ("delay.agree", "0.5.21", "0.5.22", "'wait_success'.*'delay'"),
]
STILL_RED = ["capture.legal", "layout.bad-input", "replay.safe-fallback"]  # on 0.5.23


@functools.cache
def found(invariant, version):
    """The case that a check of a real release finds, as `cpbcg check` would save it."""
    (result,) = session.check(f"sglang=={version}", ids=(invariant,), workers=1).results
    return result.counterexample.case, result.message


def written(folder, invariant, case, message="seen"):
    source = unittest_for(engine="sglang", invariant=invariant, case=case, message=message)
    file = folder / f"test_{re.sub('[^a-z]', '_', invariant)}.py"
    file.write_text(source, "utf-8")
    return file


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


def edited(root, folder, *edits):
    """The release with each (file, old, new) applied."""
    for name, old, new in edits:
        shadow = folder / "sglang/srt" / name
        text = shadow.read_text("utf-8") if shadow.exists() else (root / "sglang/srt" / name).read_text("utf-8")
        assert old in text, f"{name} does not have {old!r}"
        shadow.parent.mkdir(parents=True, exist_ok=True)
        shadow.write_text(text.replace(old, new, 1), "utf-8")
    return upstream.release(root, folder)


def batch(*lengths, prefixes=None, known=True):
    return Batch(lengths=lengths, prefixes=prefixes or (0,) * len(lengths), lengths_known=known)


def replay(*batches, ladder=(15, 16, 24, 32), strategy="zigzag", cp_size=2):
    server = Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=64, strategy=strategy)
    return ReplayCase(server=server, batches=batches)


def select(num_tokens, rows, table, ladder=None):
    ladder = tuple(ladder or dict(table))
    return SelectCase(
        num_tokens=num_tokens, required_local_tokens=rows, capture_num_tokens=ladder, bucket_local_tokens=table
    )


CONFIG = {"dp_size": 2, "max_delay_passes": 4, "max_running_requests": 64, "max_delay_ms": 500.0}
QUEUE = CONFIG | {"queue_min_ratio": 0.5, "prefill_max_requests": 4}


def both(**report):
    """The same report on two ranks."""
    return (RankReport(**{"prefillable": True, "running_batch": 8, "max_prefill_bs": 4} | report),) * 2


def mixed(**report):
    return both(**report)[:1] + (RankReport(prefillable=False),)


def passes(*reports, **config):
    return PassesCase(config=DelayerConfig(**config), passes=reports)


NONE = both(prefillable=False, running_batch=0, max_prefill_bs=0)
FULL = both(running_batch=64)  # no slot is free
LAYOUT = LayoutCase(cp_size=4, batch=batch(9, 17, 8, prefixes=(0, 3, 100)), spare_rows=3)
OWN_ROWS = ("layers/cp/bcg/zigzag_bcg.py", "return max(per_rank_logical_tokens)",
            "return per_rank_logical_tokens[get_cp_strategy().cp_rank]")  # fmt: skip
LAST_FITS = (BUCKETS, "for bucket in capture_num_tokens:", "for bucket in reversed(capture_num_tokens):")
RUN_OUT = "if queue_condition and tp0_info[:, 5].max().item() > 0:"
WATERMARK = "if global_exists_token_watermark_force_allow:"

# A right release (0.5.23), a case, and one edit that breaks the invariant there.
BROKEN = {
    ("PassesCase", "delay.agree"): (
        passes(both(), both(), (*both(now_ms=500.0)[:1], *both(now_ms=499.0)[:1]), **QUEUE),
        (DELAYER, RUN_OUT, "if prev_state and (time.perf_counter() - prev_state.start_time) * 1000.0 >= 500:"),
    ),
    ("PassesCase", "delay.bounded-passes"): (
        passes(*[FULL] * 6, **CONFIG),
        (DELAYER, "if prev_delayed_count < self._max_delay_passes - 1:", "if True:"),
    ),
    ("PassesCase", "delay.bounded-time"): (
        passes(both(), both(), both(now_ms=500.0), **QUEUE),
        (DELAYER, RUN_OUT, "if False:"),
    ),
    ("PassesCase", "delay.justified"): (
        passes(both(), both(), **CONFIG),
        (DELAYER, "if slot_condition or queue_condition:", "if True:"),
    ),
    ("PassesCase", "delay.watermark"): (
        passes(both(token_usage=0.75), token_usage_low_watermark=0.75, **CONFIG),
        (DELAYER, "and (token_usage < x)", "and (token_usage <= x)"),
    ),
    ("PassesCase", "delay.reason"): (
        passes(mixed(), both(), **CONFIG),
        (DELAYER, 'output_reason="wait_success" if exist_previous_wait else "no_wait"', 'output_reason="no_wait"'),
    ),
    ("PassesCase", "delay.skip-first"): (
        passes(both(token_usage=0.5), token_usage_low_watermark=0.75, **CONFIG),
        (DELAYER, WATERMARK, f"{WATERMARK}\n                self.skip_first_delayer = False"),
    ),
    ("LastPassCase", "delay.target-capacity"): (
        LastPassCase(
            config=DelayerConfig(**QUEUE),
            history=(FULL,),
            last=both(waiting_queue_len=1, max_prefill_bs=1),
            other_last=both(waiting_queue_len=1),
        ),
        (DELAYER, "if self._prefill_max_requests is not None", "if False"),
    ),
    ("LastPassCase", "delay.monotone"): (
        LastPassCase(
            config=DelayerConfig(**QUEUE),
            history=(FULL,),
            last=both(),
            other_last=both(waiting_queue_len=2),
        ),
        (DELAYER, "and global_waiting_queue_max < queue_min_effective", "and global_waiting_queue_max > 0"),
    ),
    ("AttemptsCase", "delay.recent-size"): None,  # see RED_THEN_GREEN
    ("SelectCase", "select.fits-tokens"): (
        select(27, 8, ((16, 8), (32, 16))),
        (BUCKETS, "if bucket < num_tokens:", "if False:"),
    ),
    ("SelectCase", "select.fits-rows"): (
        select(27, 16, ((32, 8), (48, 16))),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("SelectCase", "select.captured"): (
        select(27, 16, ((48, 16),), ladder=(32, 48)),
        (BUCKETS, "self.bucket_local_tokens.get(bucket)", "self.bucket_local_tokens.get(bucket, bucket)"),
    ),
    ("SelectCase", "select.padding-bound"): (
        select(27, 16, ((32, 8), (64, 16))),
        (BUCKETS, "if bucket > max_num_tokens:", "if False:"),
    ),
    ("SelectCase", "select.minimal"): (select(27, 8, ((32, 8), (48, 16))), LAST_FITS),
    ("SelectCase", "select.complete"): (
        select(27, 16, ((32, 8), (48, 16))),
        (BUCKETS, "required_local_tokens <= captured_local_tokens", "required_local_tokens < captured_local_tokens"),
    ),
    ("SelectCase", "select.pure"): (
        select(27, 16, ((48, 16), (64, 16))),
        (BUCKETS, "        max_num_tokens = ", "        self.bucket_local_tokens.popitem()\n        max_num_tokens = "),
    ),
    ("SelectPairCase", "select.monotone"): (
        SelectPairCase(base=select(27, 16, ((48, 16),)), more=select(27, 16, ((48, 16), (54, 16)))),
        LAST_FITS,
    ),
    ("ReplayCase", "capacity.no-overflow"): (
        replay(batch(5, 5, 5)),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("ReplayCase", "replay.admitted-implies-runs"): (
        replay(batch(5, 5, 5), batch(3, 12)),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("ReplayCase", "replay.safe-fallback"): (
        replay(batch(15, known=False), batch(3, 12)),
        (ZIGZAG, "all(int(length) >= self.cp_size * 2", "all(int(length) >= 1"),
    ),
    ("ReplayCase", "agree.bucket"): (replay(batch(5, 5, 5)), OWN_ROWS),
    ("ReplayCase", "agree.collectives"): (replay(batch(5, 5, 5)), OWN_ROWS),
    ("ReplayCase", "agree.mode"): (replay(batch(5, 5, 5), ladder=(15,)), OWN_ROWS),
    ("ReplayCase", "select.minimal"): (replay(batch(30), ladder=(32, 40, 48)), LAST_FITS),
    ("ReplayCase", "select.complete"): (
        replay(batch(5, 5, 5), batch(30), ladder=(16, 32)),
        (BUCKETS, "required_local_tokens <= captured_local_tokens", "required_local_tokens < captured_local_tokens"),
    ),
    ("ReplayCase", "select.without-cp"): (
        replay(batch(10), batch(3), cp_size=1),
        (RUNNER, "_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR = 2", "_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR = 1"),
    ),
    ("CaptureCase", "capture.legal"): None,  # see MENDED
    ("BadLayoutCase", "layout.bad-input"): (
        BadLayoutCase(cp_size=2, lengths=(3, 12)),
        (ZIGZAG, "all(int(length) >= self.cp_size * 2", "all(int(length) >= 1"),
    ),
    ("LayoutCase", "layout.bijection"): (
        LAYOUT,
        (ZIGZAG, "torch.cat([chunks[i] for i in metadata.zigzag_index], dim=0)",
         "torch.cat([chunks[i // 2] for i in metadata.zigzag_index], dim=0)"),
    ),
    ("LayoutCase", "layout.conserves"): (
        LAYOUT,
        (ZIGZAG, "actual_seq_q_prev_list.append(block_sizes[cp_rank])",
         "actual_seq_q_prev_list.append(block_sizes[0])"),
    ),
    ("LayoutCase", "layout.nonempty"): (
        LayoutCase(cp_size=4, batch=batch(8)),
        (ZIGZAG, "return pad_local_rows(local_x, metadata, dim=0)",
         "return pad_local_rows(local_x[: 2 * self.cp_rank], metadata, dim=0)"),
    ),
    ("LayoutCase", "layout.companions"): (
        LAYOUT,
        (ZIGZAG, "torch.cat([chunks[i] for i in metadata.zigzag_index], dim=-1)", "chunks[0]"),
    ),
    ("LayoutCase", "layout.causal"): (LAYOUT, (ZIGZAG, "sum(block_sizes[: cp_rank + 1])", "sum(block_sizes[:cp_rank])")),
    ("LayoutCase", "layout.balance"): (
        LAYOUT,
        (ZIGZAG, "base + 1 if block_id < rem else base", "length if block_id == 0 else 0"),
    ),
    ("LayoutCase", "layout.roundtrip"): (
        LAYOUT,
        (ZIGZAG, "for i in forward_batch.attn_cp_metadata.cp_reverse_index",
         "for i in reversed(forward_batch.attn_cp_metadata.cp_reverse_index)"),
    ),
    ("LayoutCase", "capacity.required"): (LAYOUT, (BUCKETS, "(max_local_tokens + align_size - 1)", "max_local_tokens")),
}  # fmt: skip
NEVER_DELAY = (DELAYER, "self._max_delay_passes = max_delay_passes", "self._max_delay_passes = 0")
KEEP_COUNTING = (
    DELAYER,
    "next_state=None,\n                # It does not matter",
    "next_state=prev_state,\n                #",
)
SHOULD = {  # what 0.5.23 breaks, and an edit that mends it
    ("PassesCase", "delay.budget"): (passes(*[mixed(), NONE] * 5, **CONFIG), KEEP_COUNTING),
    ("PassesCase", "delay.no-idle-hold"): (passes(mixed(running_batch=0), **CONFIG), NEVER_DELAY),
    ("PassesCase", "delay.own-slots"): (
        passes(*[(*both(running_batch=64, max_prefill_bs=0)[:1], *both(running_batch=0)[:1])] * 2, **CONFIG),
        NEVER_DELAY,
    ),
    ("PassesCase", "delay.reachable-target"): (
        passes(*[both(running_batch=62, max_prefill_bs=1, waiting_queue_len=2)] * 2, **QUEUE),
        NEVER_DELAY,
    ),
}


RAISES = ("replay.admitted-implies-runs",)  # the engine's own exception shows it; elsewhere an assertion must


def test_every_form_is_tried_here():
    assert set(BROKEN) | set(SHOULD) == set(forms("sglang"))


@pytest.mark.parametrize("form", [form for form in BROKEN if BROKEN[form]], ids="-".join)
def test_a_test_passes_on_a_right_release_and_fails_on_the_same_one_broken(release_folder, tmp_path, form):
    root, (case, edit) = release_folder("0.5.23"), BROKEN[form]
    file = written(tmp_path, form[1], case)
    right, broken = (upstream.outcome(file, tree) for tree in (upstream.release(root), edited(root, tmp_path, edit)))
    assert right.wasSuccessful(), right.failures + right.errors
    assert right.testsRun > 0
    assert broken.failures or (broken.errors and form[1] in RAISES)


@pytest.mark.parametrize("form", SHOULD, ids="-".join)
def test_a_weakness_of_the_policy_fails_until_the_policy_is_another(release_folder, tmp_path, form):
    root, (case, edit) = release_folder("0.5.23"), SHOULD[form]
    file = written(tmp_path, form[1], case)
    assert upstream.outcome(file, upstream.release(root)).failures
    mended = upstream.outcome(file, edited(root, tmp_path, edit))
    assert mended.wasSuccessful(), mended.failures + mended.errors


EQUAL_SPLIT = (
    RUNNER,
    "            min(context_length, num_tokens - start)\n            for start in range(0, num_tokens, context_length)\n",
    "            len(range(i, num_tokens, -(-num_tokens // context_length)))\n"
    "            for i in range(-(-num_tokens // context_length))\n",
)
UNKNOWN_IS_EAGER = (
    INTERLEAVE,
    "        seq_len = sum(forward_batch.extend_seq_lens_cpu)\n",
    "        if forward_batch.extend_seq_lens_cpu is None:\n            return False\n"
    "        seq_len = sum(forward_batch.extend_seq_lens_cpu)\n",
)
LOUD = [
    (INTERLEAVE, "        cp_size = self.cp_size\n        seq_len = sum", "        cp_size = self.cp_size\n"
     "        assert min(forward_batch.extend_seq_lens_cpu) >= 0\n        seq_len = sum"),
    (BUCKETS, "        max_local_tokens = ", "        assert min(extend_seq_lens) >= 0\n        max_local_tokens = "),
]  # fmt: skip
MENDED = {
    "capture.legal": (
        CaptureCase(server=Server(cp_size=2, capture_num_tokens=(12,), context_length=11)),
        [EQUAL_SPLIT],
    ),
    "replay.safe-fallback": (replay(batch(15, known=False), strategy="interleave"), [UNKNOWN_IS_EAGER]),
    "layout.bad-input": (BadLayoutCase(cp_size=2, lengths=(9, -1), strategy="interleave"), LOUD),
}


@pytest.mark.parametrize("invariant", MENDED)
def test_what_no_release_has_mended_passes_once_the_latest_is(release_folder, tmp_path, invariant):
    root, (case, edits) = release_folder("0.5.23"), MENDED[invariant]
    file = written(tmp_path, invariant, case)
    assert not upstream.outcome(file, upstream.release(root)).wasSuccessful()
    mended = upstream.outcome(file, edited(root, tmp_path, *edits))
    assert mended.wasSuccessful(), mended.failures + mended.errors


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
    assert repr(case) in doc
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
