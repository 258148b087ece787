"""The vLLM adapter on a stub of vLLM's interface, right and with one line wrong, and on the releases where they are."""

import shutil
from pathlib import Path

import pytest

from cpbcg_ref.answers import Graph
from cpbcg_ref.cases import Batch, DispatchCase, LayoutCase, Step
from cpbcg_ref.checking import run
from cpbcg_ref.checking.single import judge_case, violation
from cpbcg_ref.engines.lacking import GRAPHS_FOR_STEPS, NO_DELAYER
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.engines.vllm import VLLM
from cpbcg_ref.errors import TargetError

STUB = Path(__file__).parent / "stub_vllm"
GPU = "vllm/v1/worker/gpu/"
ASKED = ["layout.bijection", "layout.conserves", "layout.roundtrip", "layout.companions", "layout.causal"]
ASKED += ["select.fits-tokens", "select.captured", "select.minimal", "select.complete", "select.pure"]
ASKED += ["agree.bucket", "agree.mode"]
PASSED_OVER = DispatchCase(
    setup="v2 FULL_AND_PIECEWISE",
    capture_num_tokens=(4, 10),
    max_requests=13,
    ranks=(Step(decodes=1),),
    tokens_per_decode=3,
)
TAKEN = DispatchCase(
    setup="v1 FULL_AND_PIECEWISE",
    capture_num_tokens=(3, 6),
    max_requests=2,
    ranks=(Step(decodes=1),),
    tokens_per_decode=3,
    allowed=("FULL", "PIECEWISE"),
    excluded=("FULL",),
)
SHORT = LayoutCase(cp_size=2, batch=Batch(lengths=(7, 1), prefixes=(0, 5)))


@pytest.fixture
def edited(tmp_path):
    """edited(file, old, new) -> the stub with this text replaced."""
    pytest.importorskip("torch", reason="the code of vllm needs torch: install the torch extra")

    def make(file, old, new):
        tree = shutil.copytree(STUB, tmp_path / "stub")
        text = (tree / file).read_text()
        assert text.count(old) == 1, (file, old)
        (tree / file).write_text(text.replace(old, new))
        return tree

    return make


@pytest.fixture(scope="module")
def stub():
    pytest.importorskip("torch", reason="the code of vllm needs torch: install the torch extra")
    return resolve(f"vllm@{STUB}")


def failed(engine, ids=ASKED):
    checker = run.Checker(engine=engine, target="stub", profile="dev", recorded=0, known=frozenset(ids))
    results = {id: checker.check(id) for id in ids}
    return {id for id, one in results.items() if one.outcome != "pass"}


def test_a_tree_is_named_by_its_version_and_its_package_is_not_executed(stub):
    assert (stub.name, stub.version) == ("vllm", "0.0.1")


def test_a_right_stub_passes_all_that_it_is_asked(stub):
    assert failed(stub) == set()


def test_graphs_and_choices_are_told_as_the_engine_has_them(stub):
    seen = judge_case(stub, "select.complete", PASSED_OVER).seen
    full = Graph(mode="FULL", num_tokens=6, num_requests=2, tokens_per_request=3)
    assert set(seen.captured) == {full, *(Graph(mode="PIECEWISE", num_tokens=size) for size in (4, 10))} | {
        Graph(mode="FULL", num_tokens=12, num_requests=4, tokens_per_request=3)
    }
    assert seen.chosen == (full,)


def test_rows_and_keys_are_told_as_the_engine_has_them(stub):
    seen = judge_case(stub, "layout.causal", SHORT).seen
    assert seen.rows == ((0, 1, 6, 7), (2, 3, 4, 5))
    assert seen.positions == ((0, 1, 6, 5), (2, 3, 4, 5))
    assert seen.segments == (((2, 2), (1, 7), (1, 6)), ((2, 4), (2, 6)))
    assert seen.restored == (tuple(range(8)),) * 2
    assert seen.logical == (4, 4)


@pytest.mark.parametrize(
    ("file", "old", "new", "ids"),
    [
        (
            GPU + "cudagraph_utils.py",
            "for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE)",
            "for mode in (CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL)",
            {"select.complete"},
        ),
        (
            GPU + "dp_utils.py",
            "uniform = int(told[2].max()) if told[2].min() == told[2].max() else None",
            "uniform = uniform_token_count",
            {"agree.mode", "agree.bucket"},
        ),
        (
            "vllm/v1/worker/dp_utils.py",
            "return False, told[0], int(told[1].min())",
            "return False, told[0][[parallel_config.data_parallel_rank]], int(told[1].min())",
            {"agree.bucket"},
        ),
        (
            "vllm/v1/cudagraph_dispatcher.py",
            "allowed = set(valid_modes or CUDAGraphMode) - (invalid_modes or set())",
            "allowed = valid_modes or set(CUDAGraphMode); allowed -= invalid_modes or set()",
            {"select.pure"},
        ),
        (
            "vllm/v1/cudagraph_dispatcher.py",
            "allowed = set(valid_modes or CUDAGraphMode) - (invalid_modes or set())",
            "allowed = set(valid_modes or CUDAGraphMode) - (invalid_modes or set()); (invalid_modes or set()).clear()",
            {"select.pure"},
        ),
        (
            "vllm/v1/cudagraph_dispatcher.py",
            "- (invalid_modes or set())",
            "",
            {"select.captured"},
        ),
        (
            GPU + "pcp_manager.py",
            "for chunk in (rank, 2 * self.size - 1 - rank)",
            "for chunk in (rank,)",
            set(ASKED[:3]),
        ),
        (
            GPU + "pcp_manager.py",
            "input_batch.positions[token]) + 1",
            "input_batch.positions[token])",
            {"layout.causal"},
        ),
        (
            GPU + "pcp_manager.py",
            "positions=self._padded(input_batch.positions,",
            "positions=self._padded(input_batch.positions + 1,",
            {"layout.companions"},
        ),
    ],
)
def test_what_a_stub_gets_wrong_is_neither_repaired_nor_hidden(edited, file, old, new, ids):
    of_this = [id for id in ASKED if id.startswith("layout.") == ("pcp_manager" in file)]
    assert failed(VLLM(edited(file, old, new), "1"), of_this) == ids


def test_a_symbol_that_is_gone_is_named(edited):
    with pytest.raises(TargetError, match=r"CudaGraphManager.dispatch is missing in .*cudagraph_utils.py"):
        VLLM(edited(GPU + "cudagraph_utils.py", "def dispatch(", "def choose("), "1")


def test_where_positions_are_written_by_a_kernel_they_are_not_asked(edited):
    old = "from vllm.distributed.parallel_state import get_pcp_group\n"
    kernels = "from vllm.v1.worker.gpu.input_batch import combine_sampled_and_draft_tokens, prepare_pos_seq_lens\n"
    tree = edited(GPU + "pcp_manager.py", old, old + kernels)
    batch = tree / GPU / "input_batch.py"
    batch.write_text(batch.read_text() + "\n\nprepare_pos_seq_lens = combine_sampled_and_draft_tokens = None\n")
    manager = tree / GPU / "pcp_manager.py"
    manager.write_text(
        manager.read_text()
        .replace("shard_decode_requests,", "req_states,")
        .replace("input_batch, batch_desc", "input_batch, batch_desc=None")
    )
    engine = VLLM(tree, "1")
    lacking = set(engine.unavailable) - {*NO_DELAYER, *GRAPHS_FOR_STEPS}
    assert lacking == {"gate", "captured-rows", "positions", "keys"}
    assert failed(engine, ["layout.bijection"]) == set()


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ("0.27.1", ((6, 7, 0, 1), (2, 3, 4, 5))),  # chunks that begin a sequence stand last
        ("0.33.0", ((0, 1, 6, 7), (2, 3, 4, 5))),
    ],
)
def test_rows_of_a_release_are_chunks_of_the_length_rounded_up(release, version, rows):
    engine = release(version, "vllm")
    seen = judge_case(engine, "layout.bijection", SHORT).seen
    assert (seen.rows, seen.restored, seen.logical) == (rows, (tuple(range(8)),) * 2, (4, 4))
    alone = judge_case(engine, "layout.conserves", LayoutCase(cp_size=2, batch=Batch(lengths=(1,), prefixes=(0,)))).seen
    assert (alone.rows, alone.logical) == (((0,), (None,)), (1, 0))
    if version == "0.33.0":
        assert seen.segments == (((2, 2), (1, 7), (1, 6)), ((2, 4), (2, 6)))
        assert alone.segments == (((1, 1),), ((0, 0),))


@pytest.mark.parametrize(("version", "chosen"), [("0.27.1", "PIECEWISE 4"), ("0.33.0", "FULL 6")])
def test_a_full_graph_is_passed_over_up_to_the_release_that_mended_it(release, version, chosen):
    engine = release(version, "vllm")
    judged = judge_case(engine, "select.complete", PASSED_OVER)
    assert [str(one) for one in judged.seen.chosen] == [chosen]
    assert (judged.sentence is None) == (version == "0.33.0")
    assert violation(engine, "select.pure", TAKEN) == "the dispatcher changed its argument allowed (1 decode of 3)"
