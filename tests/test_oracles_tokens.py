"""The oracles against the golden numbers of the specification, and against enumeration where that is possible."""

import doctest

import pytest

from cpbcg_ref.cases import SelectCase
from cpbcg_ref.oracles import buckets, tokens
from cpbcg_ref.oracles.buckets import fitting, has_legal_split, refusals
from cpbcg_ref.oracles.tokens import block_sizes, live_rows, owned_tokens, places, shardable, smallest_multiple


@pytest.mark.parametrize("module", [tokens, buckets])
def test_the_examples_in_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("cp_size", "lengths", "rows", "required"),
    [
        (4, (1534, 161, 353), (513, 511, 512, 512), 520),
        (4, (9, 9, 9), (9, 6, 6, 6), 16),
        (4, (9,) * 16, (48, 32, 32, 32), 48),
        (4, (9,) * 200, (600, 400, 400, 400), 600),
        (2, (5, 5, 5), (9, 6), 12),
        (8, (17,) * 6, (18, *(12,) * 7), 32),
    ],
)
def test_rows_per_rank_are_the_golden_ones(cp_size, lengths, rows, required):
    assert live_rows(lengths, cp_size, "zigzag") == rows
    assert smallest_multiple(max(rows), 2 * cp_size) == required


@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
@pytest.mark.parametrize("blocks", ["balanced", "ceil"])
def test_every_token_has_one_owner_in_the_oracle_too(strategy, blocks):
    owned = owned_tokens((9, 1, 0, 30), 4, strategy, blocks)
    assert sorted(token for rank in owned for token in rank) == list(range(40))


def test_ceil_chunks_may_leave_late_blocks_empty():
    assert block_sizes(10, cp_size=4, blocks="ceil") == [2, 2, 2, 2, 2, 0, 0, 0]
    assert block_sizes(8, cp_size=4, blocks="ceil") == [1] * 8


def test_the_last_rows_of_both_blocks_see_the_golden_keys():
    owner = places((3670,), (1,))
    owned = owned_tokens((3670,), 4, "zigzag")
    keys = [[len(tokens.causal_keys(owner[token][1])) for token in rank] for rank in owned]
    ends = [(rank[blocks - 1], rank[-1]) for rank, blocks in zip(keys, block_sizes(3670, cp_size=4), strict=False)]
    assert ends == [(460, 3671), (919, 3213), (1378, 2755), (1837, 2296)]


@pytest.mark.parametrize(
    ("lengths", "strategy", "active"),
    [
        ((8,), "zigzag", True),
        ((7,), "zigzag", False),
        ((100, 3), "zigzag", False),
        ((), "zigzag", False),
        ((1, 3), "interleave", True),
        ((3,), "interleave", False),
        ((-1, 9), "interleave", False),
        ((0, 4), "interleave", True),
    ],
)
def test_cp_is_active_when_every_rank_gets_a_shard(lengths, strategy, active):
    assert shardable(lengths, cp_size=4, strategy=strategy) == active


def test_two_ranks_are_a_group_and_one_is_not():
    assert [shardable((8,), cp_size=cp_size, strategy="zigzag") for cp_size in (1, 2)] == [False, True]


def test_lengths_are_shardable_by_the_declared_divisor_and_minimum():
    declared = [shardable((12, 6), cp_size=3, strategy="zigzag", **how) for how in ({"divides": 2}, {"divides": 4})]
    assert declared == [True, False]
    assert shardable((3,), cp_size=3, strategy="zigzag", min_length=1)


def test_no_more_requests_are_shardable_than_declared():
    declared = [shardable((8, 8), cp_size=2, strategy="zigzag", max_requests=most) for most in (0, 1, 2)]
    assert declared == [True, False, True]


def sums(count, sizes):
    """All totals of `count` requests, by trying them."""
    return {0} if count == 0 else {total + size for total in sums(count - 1, sizes) for size in sizes}


@pytest.mark.parametrize(("shortest", "longest", "step"), [(4, 4, 1), (4, 6, 1), (3, 8, 1), (4, 9, 4), (6, 5, 1)])
def test_a_legal_split_exists_exactly_when_enumeration_finds_one(shortest, longest, step):
    sizes = [size for size in range(shortest, longest + 1) if size % step == 0]
    reachable = set().union(*(sums(count, sizes) for count in range(1, 7)))
    for bucket in range(1, 19):
        found = has_legal_split(bucket, shortest=shortest, longest=longest, step=step)
        assert found == (bucket in reachable), bucket


def selection(num_tokens, required, captured, **options):
    return SelectCase(
        num_tokens=num_tokens,
        required_local_tokens=required,
        capture_num_tokens=tuple(captured),
        bucket_local_tokens=tuple(captured.items()),
        **options,
    )


@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        (selection(2048, 520, {2048: 512, 2304: 576, 2560: 640}), [2304, 2560]),
        (selection(2048, 520, {2048: 512, 2304: 516}), []),
        (selection(27, 16, {32: 8, 48: 16}), [48]),
        (selection(27, 16, {32: 8, 64: 16}), []),
        (selection(144, 48, {144: 40, 152: 40, 192: 48}), [192]),
        (selection(1024, 256, {2048: 512}), [2048]),
        (selection(1023, 256, {2048: 512}), []),
        (selection(5, 2, {4: 2, 16: 4}), []),
        (selection(5, 2, {4: 2, 16: 4}, min_replay_bucket=16), [16]),
        (selection(5, 2, {4: 2, 16: 4}, min_replay_bucket=4), []),
    ],
)
def test_the_search_over_buckets_finds_the_golden_choice(case, chosen):
    assert fitting(case) == chosen


def test_a_refusal_says_which_rule_and_the_numbers():
    case = selection(100, 30, {96: 40, 104: 24, 208: 32, 112: 40})
    assert [refusals(case, bucket) for bucket in (96, 104, 208, 112, 120, 80)] == [
        ["too few tokens: 100 needed"],
        ["too few rows: 24 captured, 30 needed"],
        ["over 2x: at most 200 tokens allowed"],
        [],
        ["not captured, or rows unknown"],
        ["too few tokens: 100 needed", "not captured, or rows unknown"],
    ]


@pytest.mark.parametrize(("cp_size", "gaps"), [(2, [0, 1, 3, 8]), (4, [0, 1, 3, 6, 9, 18, 17, 16])])
def test_causal_work_is_as_uneven_as_the_golden_numbers_say(cp_size, gaps):
    for extra, gap in enumerate(gaps):
        owned = owned_tokens((2 * cp_size + extra,), cp_size, "zigzag")
        work = [sum(len(tokens.causal_keys(token)) for token in rank) for rank in owned]
        assert max(work) - min(work) == gap
