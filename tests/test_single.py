"""One case judged alone: what a pinned `@example` and a replayed failure rest on."""

import subprocess
import sys
import textwrap

import pytest
from toys import Toy

from cpbcg_ref import cases
from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase, ReplayCase, Server
from cpbcg_ref.checking import single
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.single import judge_case, violation
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.errors import CpbcgError, InvalidInput
from cpbcg_ref.invariants import REGISTRY

BATCH = Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0))
SERVER = Server(cp_size=4, capture_num_tokens=(32, 48), context_length=64)
CASE = ReplayCase(server=SERVER, batches=(BATCH,))


class TokensAlone(Reference):
    """Picks the bucket by the number of tokens alone."""

    def start(self, server):
        started = super().start(server)
        started.select = lambda batch, cp_rank: 32
        started.can_run_graph = lambda batch, cp_rank: True
        return started


def test_a_violated_case_is_told_with_its_numbers_and_the_answers():
    found = judge_case(TokensAlone(), "replay.admitted-implies-runs", CASE)
    assert found.sentence == "rank 0 admits bucket 32, replays bucket 48 (lengths 9,9,9, cp 4)"
    assert found.seen.batches[0].bucket == (32,) * 4
    assert violation(TokensAlone(), "replay.admitted-implies-runs", CASE) == found.sentence


def test_a_case_that_the_engine_gets_right_is_no_violation_and_its_answers_are_there():
    found = judge_case(Reference(), "replay.admitted-implies-runs", CASE)
    assert (found.sentence, found.seen.batches[0].bucket) == (None, (48,) * 4)


def test_each_part_that_asks_this_kind_of_case_is_judged():
    """layout.bad-input asks the sharder and, where they are there, the leaf and the gate."""

    class Lenient(Toy):
        roots = (__file__,)

        def shard(self, *args, **options):
            raise ValueError("refused")

        def required_local_tokens(self, lengths, **options):
            return 8

    case = BadLayoutCase(cp_size=4, lengths=(9, -1))
    assert len(REGISTRY["layout.bad-input"].parts) == 3
    assert violation(Lenient(), "layout.bad-input", case).startswith("leaf required_local_tokens answers 8")


@pytest.mark.parametrize(
    ("invariant", "case", "sentence"),
    [
        ("select.minimall", CASE, "no invariant is called 'select.minimall': did you mean select.minimal?"),
        ("zzz", CASE, "no invariant is called 'zzz': `cpbcg invariants` lists them"),
        (
            "select.minimal",
            BATCH,
            "the case is a Batch: select.minimal is asked with a DispatchCase or ReplayCase or SelectCase",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_what_would(invariant, case, sentence):
    with pytest.raises(InvalidInput) as refused:
        violation(Reference(), invariant, case)
    assert str(refused.value) == sentence


def test_an_engine_that_cannot_be_asked_is_no_pass():
    class Layoutless(Reference):
        unavailable = {"layout": "no layout here"}  # noqa: RUF012

    case = LayoutCase(cp_size=4, batch=BATCH)
    with pytest.raises(CpbcgError, match=r"cannot be asked layout\.bijection: no layout here"):
        violation(Layoutless(), "layout.bijection", case)


def test_a_ladder_that_cannot_be_captured_is_no_pass():
    tiny = Server(cp_size=4, capture_num_tokens=(4,), context_length=64)
    with pytest.raises(CpbcgError, match="the engine cannot capture the ladder of this case: "):
        violation(Reference(), "agree.mode", ReplayCase(server=tiny, batches=(BATCH,)))


WRONG = """
from cpbcg_ref.engines.reference import Reference

class Wrong(Reference):
    roots = (__file__,)

    def required_local_tokens(self, lengths, **group):
        return super().required_local_tokens(lengths, **group) - (lengths == [9, 9, 9])
"""


@pytest.mark.parametrize(
    ("target", "ended", "said"),
    [("reference", 0, "1 passed"), ("wrong.py:Wrong", 1, "requires 15 rows, the largest rank owns 9: 16 padded")],
)
def test_the_test_that_the_docstring_shows_runs_and_fails_on_the_pinned_case(tmp_path, target, ended, said):
    """A case that generation hardly ever makes."""
    (tmp_path / "wrong.py").write_text(WRONG)
    shown = textwrap.dedent(single.__doc__.split("\n\n", 1)[1])
    line = "@example(case=LayoutCase(cp_size=4, batch=Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0))))"
    for old, new in {
        "@example(case=ReplayCase(...))": line,
        "sglang==0.5.18": target,
        '"replay"': '"layout"',
        "capacity.no-overflow": "capacity.required",
    }.items():
        assert old in shown
        shown = shown.replace(old, new)
    (tmp_path / "test_pinned.py").write_text(shown)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pinned.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (run.returncode, said in run.stdout) == (ended, True), run.stdout


def test_the_line_that_a_failure_offers_pins_its_own_case():
    class Wrong(Toy):
        def required_local_tokens(self, lengths, **group):
            return super().required_local_tokens(lengths, **group) + 1

    found = Checker(engine=Wrong(), target="wrong", profile="dev").check("capacity.required")
    assert found.counterexample.example.startswith("@example(case=LayoutCase(cp_size=")
    case = eval(found.counterexample.example.removeprefix("@"), vars(cases) | {"example": lambda case: case})
    assert violation(Wrong(), "capacity.required", case) == found.message
