"""The generated batches find what they are for, soon, and never break a precondition."""

import dataclasses
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cpbcg_ref.cases import Batch, Deployment, ReplayCase, Server
from cpbcg_ref.checking import generators
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.oracles.tokens import shardable
from cpbcg_ref.strategies import (
    bad_layout_cases,
    capture_cases,
    cases_for,
    layout_cases,
    replay_cases,
    select_cases,
    select_pair_cases,
)
from cpbcg_ref.strategies.batches import fill

BOTH = Contract(strategies=("zigzag", "interleave"), graph_strategies=("zigzag", "interleave"), min_replay_bucket=True)
STRICT = Contract(divides=2, cp_sizes=(2, 4, 6))


class Enough(Exception):
    """Ends a run of Hypothesis."""


def run(strategy: st.SearchStrategy[Any], use: Callable[[Any], None], *, number: int, most: int, shrink: bool = False):
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

    @seed(number)
    @settings(max_examples=most, phases=phases, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def each(case: Any) -> None:
        use(case)

    each()


def examples(strategy: st.SearchStrategy[Any], most: int = 300) -> list[Any]:
    found: list[Any] = []
    run(strategy, found.append, number=7, most=most)
    return found


def rows(lengths: tuple[int, ...], cp_size: int) -> int:
    """Padded rows by dealing out the blocks one by one."""
    loads = [0] * cp_size
    for length in lengths:
        for block in range(2 * cp_size):
            owner = min(block, 2 * cp_size - 1 - block)
            loads[owner] += len(range(block, length, 2 * cp_size))
    unit = 2 * cp_size
    return next(padded for padded in range(0, 10**6, unit) if padded >= max(loads))


def overflows(case: ReplayCase) -> bool:
    """Does a selector that looks at the token count alone pick a bucket with too few rows?"""
    server = case.server
    for batch in case.batches:
        active = batch.lengths_known and batch.lengths and min(batch.lengths) >= 2 * server.cp_size
        bucket = next((b for b in server.capture_num_tokens if b >= batch.num_tokens), None)
        if active and bucket and bucket <= 2 * batch.num_tokens:
            one_request = bucket <= server.context_length
            if one_request and rows(batch.lengths, server.cp_size) > rows((bucket,), server.cp_size):
                return True
    return False


def examples_to_first_overflow(strategy: st.SearchStrategy[Any], number: int) -> int:
    asked = 0

    def use(case: ReplayCase) -> None:
        nonlocal asked
        asked += 1
        if overflows(case):
            raise Enough

    with pytest.raises(Enough):
        run(strategy, use, number=number, most=300)
    return asked


# Measured: medians of 2 and 3, at most 7 examples.
@pytest.mark.parametrize("ladder", generators.LADDERS)
@pytest.mark.parametrize("cp_size", generators.CP_SIZES)
def test_a_selector_blind_to_rows_overflows_within_ten_examples_at_the_median(cp_size, ladder):
    needed = generators.measure("ours", cp_size, ladder).examples
    assert len(needed) == 20
    assert median(needed) <= 10, needed


def test_any_server_of_ours_overflows_within_forty_examples_at_the_median():
    needed = [examples_to_first_overflow(replay_cases(Contract()), number) for number in range(20)]
    assert median(needed) <= 40, needed


def test_an_overflow_shrinks_to_one_batch_of_three_short_requests():
    server = Server(cp_size=4, capture_num_tokens=tuple(range(9, 65, 3)), context_length=131072)
    smallest: list[ReplayCase] = []

    def use(case: ReplayCase) -> None:
        if overflows(case):
            smallest.append(case)
            raise Enough

    with pytest.raises(Enough):
        run(replay_cases(Contract(), server), use, number=1, most=300, shrink=True)
    lengths = smallest[-1].batches[-1].lengths
    assert len(lengths) == 3
    assert max(lengths) <= 26


@pytest.mark.parametrize("contract", [Contract(), BOTH, STRICT], ids=["plain", "both layouts", "strict"])
def test_every_server_can_capture_its_whole_ladder_even_when_it_cuts_at_the_context_length(contract):
    for case in examples(replay_cases(contract)):
        server = case.server
        assert server.cp_size in contract.cp_sizes
        assert list(server.capture_num_tokens) == sorted(set(server.capture_num_tokens))
        for bucket in server.capture_num_tokens:
            cuts = range(0, bucket, server.context_length)
            shortest = server.cp_size * (1 if server.strategy == "interleave" else 2)
            assert all(min(server.context_length, bucket - at) >= shortest for at in cuts), server


def test_a_layout_without_graphs_is_asked_for_now_and_then():
    found = [case.server for case in examples(replay_cases(Contract(strategies=("zigzag", "interleave"))))]
    without = [server for server in found if server.strategy == "interleave"]
    assert len(found) / 20 < len(without) < len(found) / 8
    assert all(server.cp_size > 1 for server in without)
    assert {case.server.strategy for case in examples(replay_cases(Contract()))} == {"zigzag"}


@pytest.mark.parametrize("cases", [layout_cases, select_cases, replay_cases])
def test_nearly_every_generated_case_is_a_new_one(cases):
    """Drawn as a tree of choices they were not: some were copies of the case before, many of a part of it."""
    found = examples(cases(BOTH))
    assert len(set(found)) > 0.95 * len(found)


def test_no_replayed_sequence_is_longer_than_the_context():
    for case in examples(replay_cases(BOTH)):
        for batch in case.batches:
            both = zip(batch.lengths, batch.prefixes, strict=True)
            assert all(cached >= 0 and length + cached <= case.server.context_length for length, cached in both), case


def edges_of(case: ReplayCase) -> set[str]:
    ladder, n = case.server.capture_num_tokens, case.server.cp_size
    found = {"one rank"} if n == 1 else set()
    found |= {"cut at the context"} if case.server.context_length < ladder[-1] else set()
    for batch in case.batches:
        total = batch.num_tokens
        found |= {name for name, it in edge_totals(total, ladder).items() if it}
        found |= {"empty"} if not batch.lengths else set()
        found |= {"unknown"} if not batch.lengths_known else set()
        found |= {"inactive"} if batch.lengths and n > 1 and min(batch.lengths) < 2 * n else set()
        found |= {f"prefix {cached}" for cached in batch.prefixes if cached in (1, 64, 3670)}
        found |= {"many requests"} if len(batch.lengths) > 30 else set()
    return found


def edge_totals(total: int, ladder: tuple[int, ...]) -> dict[str, bool]:
    return {
        "a full bucket": total in ladder,
        "twice the tokens": 2 * total in ladder,
        "just beyond twice": total > 0 and any(b in (2 * total + 1, 2 * total + 2) for b in ladder),
        "just above a bucket": total - 1 in ladder,
        "above all": total > ladder[-1],
    }


def test_every_edge_of_admission_comes_up_within_three_hundred_examples():
    expected = {"one rank", "cut at the context", "empty", "unknown", "inactive", "many requests"}
    expected |= {"prefix 1", "prefix 64", "prefix 3670", *edge_totals(0, (1,))}
    assert set().union(*map(edges_of, examples(replay_cases(Contract())))) >= expected


def test_one_replay_in_ten_comes_back_to_its_first_batch_after_another():
    found = [case.batches for case in examples(replay_cases(Contract()))]
    again = [batches for batches in found if batches[0] == batches[-1] and batches[0] not in batches[1:2]]
    assert len([batches for batches in again if len(batches) > 2]) > len(found) / 10


@pytest.mark.parametrize("contract", [Contract(), BOTH, STRICT], ids=["plain", "both layouts", "strict"])
def test_every_layout_case_is_a_batch_that_the_engine_must_shard(contract):
    for case in examples(layout_cases(contract)):
        lengths, n = case.batch.lengths, case.cp_size
        assert n in contract.cp_sizes
        assert n > 1
        assert case.spare_rows % contract.aligned(1, cp_size=n, strategy=case.strategy) == 0
        shortest = 2 * n if case.strategy == "zigzag" else 1
        assert min(lengths) >= shortest
        assert sum(lengths) >= n
        assert not contract.divides or all(length % (contract.divides * n) == 0 for length in lengths)


def test_layouts_come_at_multiples_of_the_shard_and_one_beside_with_one_to_many_requests():
    found = [case for case in examples(layout_cases(Contract())) if case.cp_size == 4]
    assert {length % 8 for case in found for length in case.batch.lengths} == set(range(8))
    assert {1, 2} < {len(case.batch.lengths) for case in found}
    assert max(len(case.batch.lengths) for case in found) > 30
    assert {cached for case in found for cached in case.batch.prefixes} == {0, 1, 64, 3670}


@pytest.mark.parametrize("contract", [Contract(), BOTH, STRICT], ids=["plain", "both layouts", "strict"])
def test_every_bad_layout_holds_something_that_cannot_be_sharded(contract):
    for case in examples(bad_layout_cases(contract)):
        n, lengths = case.cp_size, case.lengths
        odd = contract.divides and any(length % (contract.divides * n) for length in lengths)
        short = any(length < 2 * n for length in lengths) if case.strategy == "zigzag" else sum(lengths) < n
        assert not lengths or odd or short or min(lengths) < 0, case


def test_bad_layouts_are_negative_and_zero_and_too_short_and_absent():
    found = [case.lengths for case in examples(bad_layout_cases(Contract())) if case.cp_size == 4]
    assert () in found
    assert {-1, 0, 1, 7} <= {length for lengths in found for length in lengths}
    assert any(len(lengths) > 2 for lengths in found)


def trap_of(server: Server) -> set[str]:
    unit, context, ladder = 2 * server.cp_size, server.context_length, server.capture_num_tokens
    found = {"tiny context"} if context < unit else set()
    found |= {"tiny bucket"} if ladder[0] < unit else set()
    found |= {"one bucket"} if len(ladder) == 1 else set()
    found |= {"short rest"} if any(bucket > context and 0 < bucket % context < unit for bucket in ladder) else set()
    found |= {"no split"} if any(unit * -(-bucket // context) > bucket >= unit for bucket in ladder) else set()
    return found | ({"too long"} if any(bucket > context for bucket in ladder) else set())


def test_every_trap_of_capture_comes_up_within_three_hundred_examples():
    traps = set().union(*(trap_of(case.server) for case in examples(capture_cases(Contract()))))
    assert traps == {"tiny context", "tiny bucket", "one bucket", "short rest", "no split", "too long"}


def test_selections_stand_on_both_sides_of_every_rule():
    found = examples(select_cases(BOTH))
    large = [case for case in found if case.num_tokens > 100]  # where T + 1 is not also 2T - 1
    ratios = {bucket - case.num_tokens for case in large for bucket in case.capture_num_tokens}
    bounds = {bucket - 2 * case.num_tokens for case in large for bucket in case.capture_num_tokens}
    spare = {r - case.required_local_tokens for case in found for _, r in case.bucket_local_tokens}
    assert {-1, 0, 1} <= ratios & bounds & spare
    assert any(len(case.bucket_local_tokens) < len(case.capture_num_tokens) for case in found)
    assert any(case.min_replay_bucket > 2 * case.num_tokens for case in found)


def test_an_engine_without_the_floor_is_never_given_one():
    assert {case.min_replay_bucket for case in examples(select_cases(Contract()))} == {0}
    assert {case.server.min_replay_bucket for case in examples(replay_cases(Contract()))} == {0}


def test_the_second_of_a_pair_has_more_capacity_or_one_bucket_that_cannot_matter_or_is_right():
    for pair in examples(select_pair_cases(BOTH)):
        base, more = pair.base, pair.more
        before, after = dict(base.bucket_local_tokens), dict(more.bucket_local_tokens)
        assert dataclasses.replace(more, capture_num_tokens=(), bucket_local_tokens=()) == dataclasses.replace(
            base, capture_num_tokens=(), bucket_local_tokens=()
        )
        for bucket in set(more.capture_num_tokens) - set(base.capture_num_tokens):
            bound = max(2 * base.num_tokens, base.min_replay_bucket)
            assert bucket <= base.num_tokens or bucket > bound or bucket not in after, pair
        assert all(after[bucket] >= rows for bucket, rows in before.items())


@pytest.mark.parametrize("family", ["capture", "select", "select-pair", "replay", "layout", "bad-layout"])
def test_a_deployment_pins_its_server(family):
    server = Server(cp_size=4, capture_num_tokens=(5, 2048, 4096), context_length=4096)
    found = examples(cases_for(family, BOTH, deployment=Deployment(server=server)), 50)
    for case in found:
        base = getattr(case, "base", case)
        pinned = getattr(base, "server", base)
        assert getattr(pinned, "cp_size", 4) == 4
        assert getattr(pinned, "strategy", "zigzag") == "zigzag"
        assert getattr(pinned, "capture_num_tokens", (5, 2048, 4096)) == (5, 2048, 4096)


def test_an_engine_of_one_sequence_without_a_cache_gets_one_request_and_no_cached_tokens():
    alone = Contract(max_requests=1, cached_prefixes=False, divides=2)
    for case in examples(layout_cases(alone)):
        assert len(case.batch.lengths) == 1
        assert not any(case.batch.prefixes)
    bad = examples(bad_layout_cases(alone))
    assert {len(case.lengths) for case in bad} == {0, 1}
    assert not [case for case in bad if shardable(case.lengths, case.cp_size, "zigzag", **alone.sharding)]


def test_sequences_that_come_with_their_tokens_are_never_shorter_than_nothing():
    told = Contract(negative_lengths=False)
    assert min(length for case in examples(bad_layout_cases(told)) for length in case.lengths) == 0
    nothing_is_bad = Contract(negative_lengths=False, min_length=0)
    assert {case.lengths for case in examples(bad_layout_cases(nothing_is_bad))} == {()}


def test_a_caller_who_chooses_the_padding_chooses_a_factor_that_does_not_fit():
    found = examples(bad_layout_cases(Contract(min_length=0, negative_lengths=False, padding_factor=True)))
    assert all(case.padding_factor % (2 * case.cp_size) for case in found)
    assert {2, 4} < {case.padding_factor for case in found if case.cp_size == 3}
    assert {1} < {length for case in found for length in case.lengths}
    assert {case.padding_factor for case in examples(bad_layout_cases(Contract()))} == {0}


@pytest.mark.parametrize("family", ["layout", "bad-layout"])
def test_a_server_without_context_parallelism_is_asked_no_layout(family):
    server = Server(cp_size=1, capture_num_tokens=(64,), context_length=64)
    assert cases_for(family, Contract(), deployment=Deployment(server=server)).is_empty
    assert not cases_for("replay", Contract(), deployment=Deployment(server=server)).is_empty


@pytest.mark.parametrize(
    ("requests", "remainder", "lengths"),
    [(3, 1, (9, 9, 9)), (2, 1, (17, 10)), (1, 0, (27,)), (64, 1, (9, 9, 9)), (3, 7, (27,))],
)
def test_filling_gives_all_requests_but_the_last_one_remainder(requests, remainder, lengths):
    assert fill(27, requests=requests, unit=8, remainder=remainder, longest=64) == lengths


@pytest.mark.parametrize(("longest", "lengths"), [(20, (17, 17, 17, 13)), (16, (16, 16, 16, 16))])
def test_filling_never_passes_the_context_length_and_gives_up_the_remainder_for_it(longest, lengths):
    assert fill(64, requests=1, unit=8, remainder=1, longest=longest) == lengths


def test_a_batch_knows_as_many_prefixes_as_lengths():
    batches: list[Batch] = [batch for case in examples(replay_cases(BOTH)) for batch in case.batches]
    assert all(len(batch.prefixes) == len(batch.lengths) for batch in batches)
