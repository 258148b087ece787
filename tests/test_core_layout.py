"""The layout against the definition read aloud: tokens dealt one by one, ranks counted, nothing in closed form."""

from itertools import product

import pytest

from cpbcg_ref import (
    extend_lengths,
    gather,
    is_cp_active,
    kv_segments,
    local_tokens,
    per_rank_logical_tokens,
    required_local_tokens,
    shard,
)

BATCHES = [lengths for count in (1, 2, 3) for lengths in product(range(0, 19, 3), repeat=count)]


def dealt(lengths, cp_size):
    """Per rank, (request, block) of every row: each request deals its tokens round its blocks."""
    owner = list(range(cp_size)) + list(reversed(range(cp_size)))
    rows = [0] * cp_size
    for length in lengths:
        for token in range(length):
            rows[owner[token % (2 * cp_size)]] += 1
    return tuple(rows)


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4, 5, 8, 16])
def test_rows_per_rank_are_those_of_dealing_the_tokens_one_by_one(cp_size):
    for lengths in BATCHES:
        assert per_rank_logical_tokens(lengths, cp_size=cp_size) == dealt(lengths, cp_size), lengths


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4, 5, 8, 16])
def test_required_rows_are_the_first_multiple_of_the_alignment_that_holds_the_largest_rank(cp_size):
    unit = 1 if cp_size == 1 else 2 * cp_size
    for lengths in BATCHES:
        largest = max(dealt(lengths, cp_size))
        required = next(rows for rows in range(largest, largest + unit) if rows % unit == 0)
        assert required_local_tokens(lengths, cp_size=cp_size) == required, lengths


@pytest.mark.parametrize(("strategy", "cp_size"), list(product(["zigzag", "interleave"], [1, 2, 3, 4, 5])))
def test_rows_per_rank_count_the_tokens_owned(strategy, cp_size):
    for lengths in BATCHES:
        owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
        assert per_rank_logical_tokens(lengths, cp_size=cp_size, strategy=strategy) == tuple(map(len, owned))
        assert sorted(token for tokens in owned for token in tokens) == list(range(sum(lengths)))


def test_early_blocks_of_all_requests_come_before_all_late_blocks():
    assert local_tokens([9, 8], cp_size=2) == ((0, 1, 2, 9, 10, 7, 8, 15, 16), (3, 4, 11, 12, 5, 6, 13, 14))


def test_interleave_deals_the_tokens_of_the_batch_without_looking_at_requests():
    assert local_tokens([3, 9], cp_size=4, strategy="interleave") == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))


@pytest.mark.parametrize(("strategy", "cp_size"), list(product(["zigzag", "interleave"], [1, 2, 3, 4])))
def test_the_keys_of_a_row_are_its_prefix_and_the_tokens_up_to_itself(strategy, cp_size):
    for lengths in BATCHES:
        prefixes = [5 * i for i in range(len(lengths))]
        keys = [prefix + i + 1 for length, prefix in zip(lengths, prefixes, strict=True) for i in range(length)]
        owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
        segments = kv_segments(lengths, cp_size=cp_size, prefixes=prefixes, strategy=strategy)
        for tokens, rank_segments in zip(owned, segments, strict=True):
            seen = [last - rows + 1 + i for rows, last in rank_segments for i in range(rows)]
            assert seen == [keys[token] for token in tokens], lengths


@pytest.mark.parametrize("rank", range(4))
def test_a_long_request_behind_one_cached_token_sees_the_keys_worked_out_by_hand(rank):
    ends = [(460, 3671), (919, 3213), (1378, 2755), (1837, 2296)]
    assert tuple(keys for _, keys in kv_segments([3670], cp_size=4, prefixes=[1])[rank]) == ends[rank]


@pytest.mark.parametrize(("strategy", "spare"), list(product(["zigzag", "interleave"], [0, 1, 7])))
def test_gather_undoes_shard_whatever_the_padding(strategy, spare):
    lengths = [9, 13, 8]
    rows = required_local_tokens(lengths, cp_size=4, strategy=strategy) + spare
    local = shard(list(range(30)), lengths, cp_size=4, pad=-1, strategy=strategy, rows=rows)
    assert {len(shares) for shares in local} == {rows}
    assert gather(local, lengths, cp_size=4, strategy=strategy) == tuple(range(30))


@pytest.mark.parametrize(
    ("strategy", "rows"), [("zigzag", ["abchi...", "defg...."]), ("interleave", ["acegi.", "bdfh.."])]
)
def test_shard_pads_every_rank_to_the_required_rows(strategy, rows):
    local = shard("abcdefghi", [9], cp_size=2, pad=".", strategy=strategy)
    assert ["".join(own) for own in local] == rows


@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
def test_one_rank_has_the_whole_batch(strategy):
    assert shard("abcde", [3, 2], cp_size=1, pad=".", strategy=strategy, rows=6)[0][-1] == "."
    assert gather(["abcde."], [5], cp_size=1, strategy=strategy) == tuple("abcde")


@pytest.mark.parametrize(
    ("lengths", "active"), [([8], True), ([7], False), ([100, 3], False), ([], False), ([9, 9, 9], True), (None, False)]
)
def test_zigzag_is_active_when_every_request_fills_its_blocks(lengths, active):
    assert is_cp_active(lengths, cp_size=4) is active


@pytest.mark.parametrize(("lengths", "active"), [([1, 3], True), ([1, 2], False), ([], False), (None, False)])
def test_interleave_is_active_when_the_batch_has_a_token_per_rank(lengths, active):
    assert is_cp_active(lengths, cp_size=4, strategy="interleave") is active


@pytest.mark.parametrize(("lengths", "active"), [([4, 4], True), ([4, 3], False)])
def test_two_ranks_are_a_group(lengths, active):
    assert is_cp_active(lengths, cp_size=2) is active


@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
def test_one_rank_is_never_context_parallel(strategy):
    assert not is_cp_active([4096], cp_size=1, strategy=strategy)


@pytest.mark.parametrize("lengths", [None, [], ()])
def test_unknown_lengths_and_an_empty_batch_require_nothing_that_can_be_chosen(lengths):
    assert required_local_tokens(lengths, cp_size=4) is None


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"cp_size": 1}, 40),
        ({"cp_size": 4}, 16),
        ({"cp_size": 4, "strategy": "interleave"}, 12),
        ({"cp_size": 4, "alignment": 5}, 10),
        ({"cp_size": 1, "alignment": 16}, 48),
    ],
)
def test_the_alignment_follows_strategy_and_group_unless_it_is_given(options, rows):
    assert required_local_tokens([40], **options) == rows


def test_the_remainder_goes_to_the_first_blocks():
    segments = kv_segments([11], cp_size=4)
    early, late = ([rank[block][0] for rank in segments] for block in (0, 1))
    assert early + late[::-1] == [2, 2, 2, 1, 1, 1, 1, 1]


def test_a_prefix_hit_leaves_the_tokens_that_are_not_cached():
    assert extend_lengths([1005, 12], prefixes=[1000, 0]) == (5, 12)


def test_a_sequence_that_is_cached_whole_leaves_nothing():
    assert extend_lengths([12, 0], prefixes=[12, 0]) == (0, 0)


def test_a_block_without_tokens_has_no_segment():
    assert kv_segments([3, 1], cp_size=2) == (((1, 1), (1, 1)), ((1, 2), (1, 3)))
