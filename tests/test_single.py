"""One case judged alone: what a pinned `@example` and a replayed failure rest on."""

import pytest
from toys import Toy

from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase, ReplayCase, Server
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
    """layout.bad-input asks the sharder and, where there is one, the leaf."""

    class Lenient(Toy):
        roots = (__file__,)

        def shard(self, *args, **options):
            raise ValueError("refused")

        def required_local_tokens(self, lengths, **options):
            return 8

    case = BadLayoutCase(cp_size=4, lengths=(9, -1))
    assert len(REGISTRY["layout.bad-input"].parts) == 2
    assert violation(Lenient(), "layout.bad-input", case).startswith("leaf required_local_tokens answers 8")


@pytest.mark.parametrize(
    ("invariant", "case", "sentence"),
    [
        ("select.minimall", CASE, "no invariant is called 'select.minimall': did you mean select.minimal?"),
        ("zzz", CASE, "no invariant is called 'zzz': `cpbcg invariants` lists them"),
        ("select.minimal", BATCH, "the case is a Batch: select.minimal is asked with a ReplayCase or SelectCase"),
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
