"""What is compared of two answers, and what two contracts have in common: literal values."""

import doctest
from dataclasses import fields

import pytest

from cpbcg_ref.answers import (
    AttemptsSeen,
    BatchSeen,
    Captured,
    CaptureSeen,
    DispatchSeen,
    Graph,
    LastPassSeen,
    LayoutSeen,
    Loaded,
    PassesSeen,
    Raised,
    ReplaySeen,
    SelectPairSeen,
    SelectSeen,
    Verdict,
    VotesSeen,
)
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import common as in_common
from cpbcg_ref.checking import functions
from cpbcg_ref.checking.common import common, nothing_common
from cpbcg_ref.checking.functions import FUNCTIONS, differing, functions_like
from cpbcg_ref.engines.contract import METHODS, Contract, Dispatcher
from cpbcg_ref.errors import InvalidInput

ALLOW = Verdict(allow=True, reason="no_wait", wait_passes=0, episode_open=False, delayed_passes=0, free_pass_used=True)
DELAY = Verdict(allow=False, reason="delay", wait_passes=0, episode_open=True, delayed_passes=1, free_pass_used=True)
OTHER_REASON = Verdict(
    allow=True, reason="wait_success", wait_passes=1, episode_open=False, delayed_passes=0, free_pass_used=True
)
ERROR, SAME_KIND = Raised("ValueError", "too short", "cp.py:7"), Raised("ValueError", "4 < 8", "zigzag.py:70")
GOOD = Captured(requests=((8, (8,)),), bucket_local_tokens=((8, 4),), capture_num_tokens=(8,))
MORE = Captured(requests=((8, (8,)), (16, (8, 8))), bucket_local_tokens=((8, 6), (16, 8)), capture_num_tokens=(8, 16))
LOADED, LOST = Loaded(bucket=8, captured_rows=4, live_rows=4), Loaded(bucket=8, captured_rows=4, live_rows=2)


def served(*, admitted=(True, True), loaded=(LOADED, LOADED), refused=(None, None)):
    batch = BatchSeen(active=(True, True), admitted=admitted, bucket=(8, 8), loaded=loaded, refused=refused)
    return ReplaySeen(captured=(GOOD, GOOD), batches=(batch,))


def places(name, left, right):
    return [(one.place, one.left, one.right) for one in differing(FUNCTIONS[name], left, right)]


@pytest.mark.parametrize(
    ("name", "left", "right", "expected"),
    [
        ("layout.is_cp_active", LayoutSeen(active=(True, True)), LayoutSeen(active=(True, False)), ["rank 1"]),
        ("layout.shard", LayoutSeen(rows=((0,), (1,))), LayoutSeen(rows=((0,), (1, None))), ["rank 1"]),
        ("layout.shard", LayoutSeen(rows=ERROR), LayoutSeen(rows=SAME_KIND), []),
        ("layout.shard", LayoutSeen(rows=ERROR), LayoutSeen(rows=((0,), (1,))), ["rank 0", "rank 1"]),
        ("layout.required_local_tokens", LayoutSeen(required=(ERROR, 8)), LayoutSeen(required=(SAME_KIND, 8)), []),
        ("layout.gather", LayoutSeen(restored=None), LayoutSeen(restored=None), []),
        (
            "passes.verdict",
            PassesSeen(passes=((ALLOW, ALLOW),)),
            PassesSeen(passes=((ALLOW, DELAY),)),
            ["pass 1, rank 1"],
        ),
        ("passes.verdict", PassesSeen(passes=((ALLOW,),)), PassesSeen(passes=((OTHER_REASON,),)), []),
        ("passes.verdict", PassesSeen(passes=((ALLOW,),)), PassesSeen(passes=((ERROR,),)), ["pass 1, rank 0"]),
        ("passes.reason", PassesSeen(passes=((ALLOW,),)), PassesSeen(passes=((OTHER_REASON,),)), ["pass 1, rank 0"]),
        ("passes.reason", PassesSeen(passes=((ALLOW,),)), PassesSeen(passes=((ERROR,),)), []),
        (
            "passes.state",
            PassesSeen(passes=((ALLOW,),)),
            PassesSeen(passes=((OTHER_REASON,),)),
            ["pass 1, rank 0, wait_passes"],
        ),
        ("passes.state", PassesSeen(passes=((ALLOW,),)), PassesSeen(passes=((ERROR,),)), []),
        (
            "last-pass.verdict",
            LastPassSeen(history=((ALLOW,),), last=(ALLOW,), other_last=(DELAY,)),
            LastPassSeen(history=((DELAY,),), last=(ALLOW,), other_last=(ALLOW,)),
            ["pass 1, rank 0", "other last, rank 0"],
        ),
        ("replay.can_run_graph", served(), served(admitted=(True, False)), ["batch 1, rank 1"]),
        ("replay.load_batch", served(), served(loaded=(LOADED, LOST)), ["batch 1, rank 1"]),
        ("replay.load_batch", served(), served(loaded=(LOADED, None), refused=(None, ERROR)), []),
        (
            "replay.load_batch-unadmitted",
            served(loaded=(None, None), refused=(LOADED, ERROR)),
            served(loaded=(None, None), refused=(ERROR, SAME_KIND)),
            ["batch 1, rank 0"],
        ),
        ("replay.start", served(), ERROR, ["start"]),
        ("replay.start", SAME_KIND, ERROR, []),
        ("replay.can_run_graph", served(), ERROR, []),
        (
            "capture.captured",
            CaptureSeen(ranks=(GOOD, GOOD)),
            CaptureSeen(ranks=(GOOD, MORE)),
            ["rank 1, ladder", "rank 1, bucket 8, rows", "rank 1, bucket 16, lengths", "rank 1, bucket 16, rows"],
        ),
        (
            "select.select_replay_bucket",
            SelectSeen(answer=8, again=8),
            SelectSeen(answer=8, again=None),
            ["asked again"],
        ),
        (
            "select.select_replay_bucket",
            SelectSeen(answer=8, again=8),
            SelectSeen(answer=8, again=8, mutated="capture_num_tokens"),
            ["argument changed"],
        ),
        (
            "select-pair.select_replay_bucket",
            SelectPairSeen(base=SelectSeen(answer=8, again=8), more=SelectSeen(answer=8, again=8)),
            SelectPairSeen(base=SelectSeen(answer=8, again=8), more=SelectSeen(answer=16, again=16)),
            ["more, answer", "more, asked again"],
        ),
        (
            "attempts.max_prefill_bs",
            AttemptsSeen(max_prefill_bs=(0, 2)),
            AttemptsSeen(max_prefill_bs=(1, 2)),
            ["pass 1"],
        ),
        ("votes.votes", VotesSeen(prefillable=(True, ERROR)), VotesSeen(prefillable=(True, True)), ["rank 1"]),
        (
            "dispatch.chosen",
            DispatchSeen(captured=(), chosen=(Graph(num_tokens=4), None), again=(Graph(num_tokens=4), None)),
            DispatchSeen(captured=(), chosen=(None, None), again=(Graph(num_tokens=4), None), mutated="modes"),
            ["rank 0", "argument changed"],
        ),
        (
            "dispatch.captured",
            DispatchSeen(captured=(Graph(num_tokens=4), Graph(num_tokens=8)), chosen=(), again=()),
            DispatchSeen(captured=(Graph(num_tokens=8), Graph(num_tokens=4)), chosen=(), again=()),
            [],
        ),
        (
            "dispatch.captured",
            DispatchSeen(captured=(Graph(num_tokens=4, num_prefills=0), Graph(num_tokens=8)), chosen=(), again=()),
            DispatchSeen(captured=(Graph(num_tokens=4),), chosen=(), again=()),
            ["graph 4", "graph 8"],
        ),
        (
            "dispatch.chosen",
            DispatchSeen(captured=(), chosen=(Graph(num_tokens=4, num_prefills=0),), again=()),
            DispatchSeen(captured=(), chosen=(Graph(num_tokens=4),), again=()),
            [],
        ),
    ],
)
def test_answers_differ_at_these_places(name, left, right, expected):
    assert [place for place, _, _ in places(name, left, right)] == expected
    assert {place for place, _, _ in places(name, right, left)} == set(expected)
    assert places(name, left, left) == places(name, right, right) == []


def test_each_place_has_both_answers():
    assert places("capture.captured", CaptureSeen(ranks=(GOOD,)), CaptureSeen(ranks=(ERROR,))) == [
        ("rank 0, ladder", (8,), ERROR),
        ("rank 0, bucket 8, lengths", (8,), None),
        ("rank 0, bucket 8, rows", 4, None),
    ]


def test_what_was_raised_instead_of_all_ranks_stands_at_each_of_them():
    answers = places("layout.shard", LayoutSeen(rows=((0,), (1,))), LayoutSeen(rows=ERROR))
    assert answers == [("rank 0", (0,), ERROR), ("rank 1", (1,), ERROR)]


def test_every_family_has_functions_and_every_need_is_a_capability():
    assert {one.family for one in FUNCTIONS.values()} == set(FAMILIES) - {"data"}
    assert {need for one in FUNCTIONS.values() for need in one.needs} <= set(METHODS)
    assert all(name == one.id for name, one in FUNCTIONS.items())


def test_of_an_unknown_family_every_field_is_compared():
    left, right = (SelectSeen(answer=answer, again=(1, answer)) for answer in (8, 16))
    unlike = {place for place, one in functions.every_field(left).items() if one != functions.every_field(right)[place]}
    assert unlike == {"answer", "again, rank 1"}


def test_functions_are_named_by_pattern_and_an_unknown_one_is_refused_with_the_nearest():
    assert functions_like(["attempts.*,votes.votes"]) == ["attempts.max_prefill_bs", "votes.votes"]
    with pytest.raises(InvalidInput, match=r"no function is called 'replay.selct': did you mean replay.select or"):
        functions_like(["replay.selct"])


def test_documented_examples_run():
    for module in (functions, in_common):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed


ONE = Contract(
    cp_sizes=(1, 2, 4),
    strategies=("zigzag", "interleave"),
    min_length=1,
    divides=2,
    max_requests=8,
    min_replay_bucket=True,
    blocks="ceil",
    dispatchers={"a": Dispatcher(modes=("full", "piecewise")), "b": Dispatcher(), "c": Dispatcher(even=True)},
)
OTHER = Contract(
    cp_sizes=(4, 2, 8),
    min_length=2,
    divides=3,
    max_requests=0,
    cached_prefixes=False,
    dispatchers={"a": Dispatcher(modes=("piecewise",), multiples=True), "c": Dispatcher(), "d": Dispatcher()},
)


def test_two_contracts_have_in_common_what_both_can_be_asked():
    both = common(ONE, OTHER)
    assert (both.cp_sizes, both.strategies) == ((2, 4), ("zigzag",))
    assert (both.min_length, both.divides, both.max_requests) == (2, 6, 8)
    assert (both.min_replay_bucket, both.cached_prefixes) == (False, False)
    assert both.dispatchers == {"a": Dispatcher(modes=("piecewise",), multiples=True)}
    assert both.blocks == "ceil"
    assert common(ONE, ONE) == ONE


def test_what_is_in_common_does_not_hang_on_the_order():
    one, other = common(ONE, OTHER), common(OTHER, ONE)
    unordered = {field.name: (getattr(one, field.name), getattr(other, field.name)) for field in fields(Contract)}
    unordered.pop("blocks")
    assert all(set(a) == set(b) if isinstance(a, tuple) else a == b for a, b in unordered.values())


@pytest.mark.parametrize(
    ("family", "contract", "why"),
    [
        ("layout", Contract(strategies=()), "the two engines have no strategies in common"),
        ("replay", Contract(graph_strategies=()), "the two engines have no graph_strategies in common"),
        ("replay", Contract(cp_sizes=()), "the two engines have no cp_sizes in common"),
        ("capture", Contract(cp_sizes=(1,)), "the two engines have no cp_sizes above 1 in common"),
        ("replay", Contract(cp_sizes=(1,)), ""),
        ("dispatch", Contract(), "the two engines have no dispatchers in common"),
        ("select", Contract(cp_sizes=()), ""),
    ],
)
def test_where_nothing_is_in_common_the_reason_is_told(family, contract, why):
    assert nothing_common(family, contract) == why
