"""Capture, admission and replay of published SGLang releases, through their own graph runner."""

import shutil
from pathlib import Path

import pytest

from cpbcg_ref import asking
from cpbcg_ref.answers import Loaded
from cpbcg_ref.asking import CaptureFailed
from cpbcg_ref.cases import Batch, CaptureCase, LayoutCase, ReplayCase, Server
from cpbcg_ref.engines.sglang import NEVER
from cpbcg_ref.engines.sglang_process import LEAVES, SRT
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import TargetError

FIXED = ("0.5.18", "0.5.23")
LADDER = (2560, 2048, 2304)


def batch(*lengths, prefixes=None, known=True):
    return Batch(lengths=lengths, prefixes=prefixes or (0,) * len(lengths), lengths_known=known)


def server(ladder=LADDER, *, cp_size=4, context_length=4096, strategy="zigzag"):
    return Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=context_length, strategy=strategy)


def replay(engine, started, *batches):
    return asking.ask_replay(engine, ReplayCase(server=started, batches=batches)).batches


@pytest.mark.parametrize("version", FIXED)
def test_a_fixed_release_replays_the_golden_batch_in_the_larger_bucket(release, version):
    (seen,) = replay(release(version), server(), batch(1534, 161, 353))
    assert seen.admitted == (True,) * 4
    assert seen.bucket == (2304,) * 4
    rows = [Loaded(bucket=2304, captured_rows=576, live_rows=live) for live in (513, 511, 512, 512)]
    assert list(seen.loaded) == rows


def test_0_5_17_admits_the_golden_batch_and_then_raises_on_every_rank(release):
    (seen,) = replay(release("0.5.17"), server(), batch(1534, 161, 353))
    assert seen.admitted == (True,) * 4
    assert seen.bucket == (2048,) * 4
    assert {raised.message for raised in seen.loaded} == {
        "Live batch needs 520 local CP rows, but global prefill bucket 2048 has captured capacity 512"
    }


@pytest.mark.parametrize("version", FIXED)
def test_what_does_not_fit_runs_eager(release, version):
    sparse = (2048, 2200)  # 2200 tokens are 552 rows for one request, and 27 tokens are far below any bucket
    too_sparse, far_below = replay(release(version), server(sparse), batch(1534, 161, 353), batch(9, 9, 9))
    assert too_sparse.bucket == (2200,) * 4
    assert far_below.admitted == (False,) * 4
    assert far_below.bucket == (None,) * 4


@pytest.mark.parametrize("version", ["0.5.17", *FIXED])
def test_a_request_too_short_for_cp_sends_the_batch_to_eager(release, version):
    (seen,) = replay(release(version), server((104, 128)), batch(100, 3))
    assert seen.active == seen.admitted == (False,) * 4
    assert seen.bucket == (None,) * 4


@pytest.mark.parametrize("version", FIXED)
def test_unknown_lengths_run_eager(release, version):
    (seen,) = replay(release(version), server(), batch(1534, 161, 353, known=False))
    assert seen.admitted == (False,) * 4


@pytest.mark.parametrize("version", FIXED)
def test_exactly_twice_the_tokens_is_allowed(release, version):
    exactly, more = replay(release(version), server((2048,)), batch(1024), batch(1023))
    assert (exactly.bucket[0], more.bucket[0]) == (2048, None)
    assert (exactly.admitted[0], more.admitted[0]) == (True, False)


@pytest.mark.parametrize("version", ["0.5.17", *FIXED])
def test_without_cp_the_token_rule_decides(release, version):
    seen = replay(release(version), server((4, 14, 30), cp_size=1), batch(5, 5), batch(2), batch(1), batch(31))
    assert [one.admitted[0] for one in seen] == [True, True, False, False]
    assert [one.bucket[0] for one in seen] == [14, 4, None, None]
    assert seen[0].loaded[0] == Loaded(bucket=14, captured_rows=14, live_rows=10)


@pytest.mark.parametrize("version", ["0.5.17", *FIXED])
def test_a_bucket_longer_than_the_context_is_captured_as_several_requests(release, version):
    engine = release(version)
    (captured, *others) = asking.ask_capture(engine, CaptureCase(server=server((128, 64), context_length=64))).ranks
    assert captured.requests == ((64, (64,)), (128, (64, 64)))
    assert captured.bucket_local_tokens == ((64, 16), (128, 32))
    assert captured.capture_num_tokens == (64, 128)
    assert others == [captured] * 3


@pytest.mark.parametrize("version", ["0.5.17", *FIXED])
def test_a_ladder_that_cannot_be_captured_is_an_answer(release, version):
    engine, impossible = release(version), server((68,), context_length=64)
    assert asking.ask_capture(engine, CaptureCase(server=impossible)).ranks[3].kind == "AssertionError"
    with pytest.raises(CaptureFailed):
        replay(engine, impossible, batch(64))


def test_buckets_are_filtered_and_aligned_by_the_release(release):
    captured = {
        version: asking.ask_capture(release(version), CaptureCase(server=server((4, 10, 13)))).ranks[0]
        for version in FIXED
    }
    assert captured["0.5.18"].capture_num_tokens == (10, 13)
    assert captured["0.5.23"].capture_num_tokens == (12, 16)


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("version", ["0.5.17", *FIXED])
def test_a_release_captures_the_ladder_that_its_contract_declares(release, version, cp_size):
    engine, asked = release(version), range(2 * cp_size, 8 * cp_size)
    captured = engine.start(server(asked, cp_size=cp_size)).captured(cp_rank=0)
    unit = engine.contract.ladder * cp_size or 1
    assert captured.capture_num_tokens == tuple(sorted({-(-bucket // unit) * unit for bucket in asked}))


def test_interleave_replays_where_the_release_has_graphs_for_it_and_runs_eager_elsewhere(release):
    group = server((32, 48), strategy="interleave")
    (old,), (new,) = (replay(release(version), group, batch(9, 9, 9)) for version in FIXED)
    assert old.admitted == (False,) * 4
    assert new.loaded == (Loaded(bucket=32, captured_rows=8, live_rows=7),) * 3 + (
        Loaded(bucket=32, captured_rows=8, live_rows=6),
    )


def test_a_cached_prefix_does_not_count_as_rows(release):
    (seen,) = replay(release("0.5.23"), server(), batch(1534, 161, 353, prefixes=(1000, 0, 1)))
    assert seen.loaded[0].live_rows == 513


def test_two_releases_replay_side_by_side(release):
    def required_bucket(version):
        return replay(release(version), server(), batch(1534, 161, 353))[0].bucket[0]

    assert [required_bucket(version) for version in ("0.5.17", "0.5.23", "0.5.17")] == [2048, 2304, 2048]


def test_a_release_without_cp_graphs_cannot_be_started(release):
    with pytest.raises(TargetError, match="_prefill_cuda_graph_allows_context_parallel"):
        release("0.5.16").start(server())


@pytest.fixture
def edited(release, tmp_path):
    """edited("0.5.18", module, old, new) -> that release with one word changed in a copy of the modules that run."""

    def make(version, module, old, new):
        root = Path(release(version).roots[0]).parent
        shutil.copytree(root / "sglang/srt/utils", tmp_path / "sglang/srt/utils")
        for name in LEAVES:
            file = Path(*name.split(".")).with_suffix(".py")
            if (root / file).is_file():
                text = (root / file).read_text("utf-8")
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file).write_text(text.replace(old, new) if name == module else text, "utf-8")
        return resolve(f"sglang@{tmp_path}")

    return make


def test_an_edit_in_a_tree_changes_what_it_answers(edited):
    engine = edited("0.5.18", f"{SRT}layers.cp.bcg", "required_local_tokens <= captured_local_tokens", "True")
    (seen,) = replay(engine, server(), batch(1534, 161, 353))
    assert seen.bucket == (2048,) * 4
    assert seen.loaded[0].message.startswith("Live batch needs 520 local CP rows")


def test_a_tree_without_the_files_of_the_delayer_still_replays(edited):
    engine = edited("0.5.18", "", "", "")
    assert set(engine.unavailable) - set(NEVER) == {"data", "negotiation", "attempts"}
    assert "prefill_delayer is missing" in engine.unavailable["negotiation"]
    assert "scheduler is missing" in engine.unavailable["attempts"]
    assert replay(engine, server(), batch(1534, 161, 353))[0].bucket == (2304,) * 4


def test_positions_are_asked_of_the_release_and_not_derived_from_rows(edited):
    cut = "chunks = torch.split(positions, metadata.split_list, dim=-1)"
    engine = edited("0.5.18", f"{SRT}layers.cp.zigzag", cut, cut.replace("positions,", "positions + 1,"))
    case = LayoutCase(cp_size=2, batch=batch(8))
    seen = asking.ask_layout(engine, case)
    assert (seen.rows[0], seen.positions[0]) == ((0, 1, 6, 7), (1, 2, 7, 8))


@pytest.mark.parametrize(
    ("module", "symbol"),
    [("layers.cp.utils", "prepare_cp_forward"), ("layers.cp.bcg", "PrefillCPBCGInput")],
)
def test_a_symbol_that_moved_is_one_line_with_the_supported_range(edited, module, symbol):
    with pytest.raises(TargetError, match=rf"{symbol} .*made for 0\.5\.16 to 0\.5\.23\)$"):
        edited("0.5.18", SRT + module, symbol, "Moved")


def test_a_selector_that_moved_is_not_a_release_without_one(edited):
    with pytest.raises(
        TargetError, match=r"select_replay_bucket .*was moved \(the adapter was made for 0\.5\.16 to 0\.5\.23\)$"
    ):
        edited("0.5.18", f"{SRT}layers.cp.bcg", "def select_replay_bucket(", "def moved(")
