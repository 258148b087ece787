"""Megatron-core's choice of graphs, worked out by hand; the release's own code answers."""

import pytest

from cpbcg_ref.answers import Graph, Raised
from cpbcg_ref.asking import ask_dispatch
from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.checking.single import violation

DECODE, MIXED, PREFILL = Step(decodes=1), Step(decodes=1, prefills=(1,)), Step(prefills=(2,))


@pytest.fixture(scope="module")
def engine(release):
    return release("0.16.1", "megatron-core")


def case(setup, most, *ranks, buckets=1):
    ladder = tuple(range(most // buckets, most, most // buckets))[: buckets - 1]
    return DispatchCase(setup=setup, capture_num_tokens=(*ladder, most), max_requests=most, ranks=ranks)


def chosen(engine, *asked, **told):
    return [
        one if isinstance(one, Raised) else one and str(one)
        for one in ask_dispatch(engine, case(*asked, **told)).chosen
    ]


def test_graphs_are_told_by_what_they_were_captured_for(engine):
    decodes = Graph(num_tokens=2, num_requests=2, num_prefills=0, num_decodes=2)
    strict = Graph(num_tokens=2, num_requests=2, num_prefills=2, num_decodes=0, needs_prefill=True)
    either = Graph(num_tokens=2, num_requests=2, num_prefills=2, needs_prefill=True)
    captured = {
        setup: set(ask_dispatch(engine, case(setup, 2, DECODE)).captured) for setup in engine.contract.dispatchers
    }
    assert captured == {"strict": {strict, decodes}, "not strict": {either, decodes}, "decodes only": {decodes}}


@pytest.mark.parametrize(
    ("setup", "ranks", "graphs"),
    [
        ("strict", (DECODE,), ["graph 2"]),
        ("strict", (MIXED,), [None]),
        ("not strict", (MIXED,), ["graph 2"]),
        ("decodes only", (MIXED,), [None]),
        ("decodes only", (DECODE, PREFILL), [None, None]),
        ("strict", (DECODE, MIXED), ["graph 2", None]),
        ("not strict", (DECODE, MIXED), ["graph 2", "graph 2"]),
        ("strict", (DECODE, Step(prefills=(3,))), [None, None]),
    ],
)
def test_every_rank_answers_for_itself(engine, setup, ranks, graphs):
    assert chosen(engine, setup, 2, *ranks) == graphs


def test_ranks_are_padded_to_the_largest_of_them(engine):
    assert chosen(engine, "strict", 16, DECODE, buckets=2) == ["graph 8"]
    assert chosen(engine, "strict", 16, DECODE, Step(decodes=9), buckets=2) == ["graph 16", "graph 16"]


@pytest.mark.parametrize(
    ("id", "asked", "sentence"),
    [
        (
            "agree.mode",
            case("strict", 2, DECODE, MIXED),
            "rank 0 replays, rank 1 runs eager (1 decode / 1 decode, prefill 1)",
        ),
        (
            "agree.bucket",
            case("not strict", 16, DECODE, PREFILL, buckets=2),
            "rank 0 replays 8, rank 1 replays 16 (1 decode / prefill 2)",
        ),
        ("agree.mode", case("decodes only", 2, DECODE, MIXED), None),
        ("agree.bucket", case("decodes only", 16, DECODE, Step(decodes=9), buckets=2), None),
    ],
)
def test_the_public_bug_is_found_and_nothing_beside_it(engine, id, asked, sentence):
    assert violation(engine, id, asked) == sentence
