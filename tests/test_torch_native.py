"""The context parallelism of the installed torch: real balancers, real sharding, and what is found about them."""

import subprocess
import sys

import pytest
from test_findings import DOCS, quoted

from cpbcg_ref.asking import ask_bad_layout, ask_layout
from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.single import violation
from cpbcg_ref.engines.targets import resolve

torch = pytest.importorskip("torch", reason="torch is the engine: install the torch extra")
if not torch.__version__.startswith("2.13.0"):
    pytest.skip(f"these are the verdicts on torch 2.13.0, not {torch.__version__}", allow_module_level=True)
LAYOUTS = ("bijection", "conserves", "roundtrip", "companions", "causal", "nonempty", "balance", "bad-input")
SCRIPT = "whole_documents.py"


@pytest.fixture(scope="module")
def head_tail():
    return resolve("torch")


@pytest.fixture(scope="module")
def per_document():
    return resolve("torch:per-document")


def batch(*lengths):
    return Batch(lengths=lengths, prefixes=(0,) * len(lengths))


def outcomes(engine):
    checker = Checker(engine=engine, target=engine.name, profile="dev", known=frozenset({"layout.balance"}), recorded=0)
    return {name: checker.check(f"layout.{name}").outcome for name in LAYOUTS}


SOUND = dict.fromkeys(LAYOUTS, "pass") | {"causal": "skip", "nonempty": "skip"}


def test_head_tail_holds_all_that_it_can_be_asked(head_tail):
    assert outcomes(head_tail) == SOUND


def test_per_document_is_sound_but_out_of_balance(per_document):
    assert outcomes(per_document) == SOUND | {"balance": "fail"}


def test_a_rank_gets_whole_documents(per_document):
    seen = ask_layout(per_document, LayoutCase(cp_size=2, batch=batch(4, 12)))
    assert seen.rows == ((0, 3, 1, 2, 4, 5, 6, 13), (14, 15, 7, 8, 9, 10, 11, 12))
    assert seen.positions == ((0, 3, 1, 2, 0, 1, 2, 9), (10, 11, 3, 4, 5, 6, 7, 8))
    assert seen.restored == (tuple(range(16)),) * 2
    sentence = violation(per_document, "layout.balance", LayoutCase(cp_size=2, batch=batch(4, 12)))
    assert sentence == "request 0: rows per rank [4, 0] differ by more than 1 (lengths 4,12, cp 2)"


def test_one_document_is_balanced_by_both(head_tail, per_document):
    case = LayoutCase(cp_size=2, batch=batch(8))
    assert ask_layout(head_tail, case).rows == ask_layout(per_document, case).rows == ((0, 1, 6, 7), (2, 3, 4, 5))


def test_blocks_lined_up_by_rank_are_in_balance(per_document, monkeypatch):
    """What a mended balancer would give is not flagged."""

    def by_rank(balancer, lengths, restore):
        each, starts = balancer.world_size, [sum(lengths[:i]) for i in range(len(lengths))]
        assert all(length >= 0 and length % (2 * each) == 0 for length in lengths)
        order = []
        for rank in range(each):
            for start, length in zip(starts, lengths, strict=True):
                block = length // (2 * each)
                for at in (rank, 2 * each - 1 - rank):
                    order += range(start + at * block, start + (at + 1) * block)
        indices = torch.tensor(order)
        return torch.argsort(indices) if restore else indices

    monkeypatch.setattr(per_document.make_balancer, "_generate_indices_for_batch", by_rank)
    assert outcomes(per_document) == SOUND


@pytest.mark.parametrize("lengths", [(7,), (-4,), (-1,)])
@pytest.mark.parametrize("target", ["head_tail", "per_document"])
def test_a_length_that_does_not_divide_is_refused_by_torch_itself(request, target, lengths):
    engine = request.getfixturevalue(target)
    seen = ask_bad_layout(engine, BadLayoutCase(cp_size=2, lengths=lengths))
    assert seen.rows.where.startswith("_load_balancer.py:")
    assert seen.rows.kind == ("AssertionError" if lengths != (-4,) else "RuntimeError")


def test_the_collective_of_torch_is_its_own_again_afterwards(head_tail):
    from torch.distributed import _functional_collectives as functional

    before = functional.all_gather_single
    head_tail.gather(batch(4), [[1, 4], [2, 3]], cp_size=2, strategy="zigzag")
    assert functional.all_gather_single is before


def test_a_rank_that_hands_in_other_rows_is_noticed(head_tail):
    assert head_tail.gather(batch(4), [[1, 4], [2, 9]], cp_size=2, strategy="zigzag") == [[1, 2, 9, 4]] * 2


def test_the_script_prints_what_the_page_quotes():
    command = [sys.executable, "-B", str(DOCS / "findings" / SCRIPT)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, quoted(SCRIPT)), ended.stderr
