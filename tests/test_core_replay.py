"""Selection, admission and replay: one selector, three cases, no silent fallback."""

from itertools import combinations, product

import pytest

from cpbcg_ref import (
    CaptureTable,
    InvalidInput,
    Replay,
    ReplayError,
    can_run_graph,
    load_batch,
    select_replay_bucket,
    select_replay_bucket_for_batch,
)
from cpbcg_ref.replay import smallest_bucket

TABLE = CaptureTable(ladder=(2048, 2304, 2560), cp_size=4, context_length=4096)
WITHOUT_CP = CaptureTable(ladder=(4, 16, 64), cp_size=1, context_length=4096)


def chosen(num_tokens, required, rows, **rule):
    return select_replay_bucket(
        num_tokens=num_tokens,
        required_local_tokens=required,
        capture_num_tokens=list(rows),
        bucket_local_tokens=rows,
        **rule,
    )


def batch(lengths, table):
    how = {"num_tokens": sum(lengths), "table": table}
    return select_replay_bucket_for_batch(lengths, **how), can_run_graph(lengths, **how)


def test_a_bucket_of_exactly_twice_the_tokens_replays_and_one_token_fewer_does_not():
    assert chosen(1024, 256, {2048: 512}) == 2048
    assert chosen(1023, 256, {2048: 512}) is None


@pytest.mark.parametrize(("num_tokens", "bucket"), [(2700, 2816), (3208, None), (3353, None)])
def test_a_gap_in_the_ladder_runs_eager(num_tokens, bucket):
    assert chosen(num_tokens, 1, {2816: 704, 3072: 768, 8192: 2048}) == bucket


@pytest.mark.parametrize(("floor", "bucket"), [(0, None), (4, None), (16, 16)])
def test_the_floor_lifts_the_padding_rule_for_small_buckets_only(floor, bucket):
    assert chosen(5, 5, {4: 4, 16: 16}, min_replay_bucket=floor) == bucket


def test_without_a_floor_no_bucket_pads_a_batch_without_tokens():
    assert chosen(0, 0, {1: 1}) is None


def test_another_padding_factor_moves_the_bound():
    assert chosen(10, 1, {30: 8}, max_padding_factor=3) == 30
    assert chosen(10, 1, {15: 8}, max_padding_factor=1.5) == 15
    assert chosen(10, 1, {16: 8}, max_padding_factor=1.5) is None


def test_a_bucket_of_unknown_rows_is_never_chosen():
    unknown = {"capture_num_tokens": [16, 24], "bucket_local_tokens": {24: 8}}
    assert select_replay_bucket(num_tokens=16, required_local_tokens=8, **unknown) == 24


def test_a_bucket_of_unknown_rows_is_not_even_chosen_for_a_batch_without_rows():
    unknown = {"capture_num_tokens": [16], "bucket_local_tokens": {}}
    assert select_replay_bucket(num_tokens=16, required_local_tokens=0, **unknown) is None


def test_rows_need_not_grow_with_the_buckets():
    assert chosen(16, 8, {16: 4, 20: 8, 24: 4, 32: 16}) == 20
    assert chosen(16, 9, {16: 4, 20: 8, 24: 4, 32: 16}) == 32


@pytest.mark.parametrize("ladder", [ladder for size in (1, 2, 3) for ladder in combinations(range(1, 6), size)])
def test_the_bucket_is_the_one_that_a_scan_of_the_whole_ladder_finds(ladder):
    for rows, tokens, required, floor in product(product([0, 1, 2], repeat=len(ladder)), range(6), range(3), (0, 4)):
        captured = dict(zip(ladder, rows, strict=True))
        within = [b for b in ladder if tokens <= b and (b <= 2 * tokens or b <= floor) and captured[b] >= required]
        assert chosen(tokens, required, captured, min_replay_bucket=floor) == (within[0] if within else None)


class Read(list):
    """A ladder that counts how often a bucket of it is read."""

    times = 0

    def __getitem__(self, i):
        self.times += 1
        return super().__getitem__(i)


@pytest.mark.parametrize("tokens", [1, 100, 4096, 5000, 8192, 8193])
def test_a_dozen_looks_at_a_ladder_of_512_buckets_find_the_one(tokens):
    ladder = Read(range(16, 8193, 16))
    bucket = smallest_bucket(tokens, 1, ladder, dict.fromkeys(ladder, 1), 2, 16)
    assert (bucket, ladder.times <= 14) == (-(-tokens // 16) * 16 if tokens < 8193 else None, True)


def test_unknown_required_rows_choose_nothing():
    assert chosen(16, None, {16: 8}) is None


def test_the_larger_bucket_is_chosen_when_the_layout_needs_more_rows_than_the_tokens_suggest():
    assert batch([1534, 161, 353], TABLE) == (2304, True)
    assert load_batch([1534, 161, 353], num_tokens=2048, table=TABLE) == Replay(
        bucket=2304, captured_rows=576, live_rows=(513, 511, 512, 512)
    )


def test_a_batch_that_no_bucket_holds_runs_eager_and_fails_loudly_in_replay():
    assert batch([9] * 200, CaptureTable(ladder=(2048,), cp_size=4, context_length=4096)) == (None, False)
    with pytest.raises(ReplayError, match=r"2561 tokens, lengths \[2561\]"):
        load_batch([2561], num_tokens=2561, table=TABLE)


@pytest.mark.parametrize("lengths", [[2041, 7], [7], []])
def test_a_batch_too_short_for_cp_runs_eager_and_never_reaches_a_graph(lengths):
    assert batch(lengths, TABLE) == (None, False)
    with pytest.raises(ReplayError, match="lengths"):
        load_batch(lengths, num_tokens=sum(lengths), table=TABLE)


def test_two_ranks_are_a_group_that_a_short_batch_does_not_reach():
    assert batch([3, 13], CaptureTable(ladder=(16,), cp_size=2, context_length=64)) == (None, False)


@pytest.mark.parametrize(("lengths", "bucket"), [([1, 1], 4), ([3, 5], 16), ([7], None), ([65], None), ([], None)])
def test_without_cp_the_token_rule_decides_alone(lengths, bucket):
    assert batch(lengths, WITHOUT_CP) == (bucket, bucket is not None)


def test_turning_cp_on_changes_nothing_for_a_server_without_it():
    floored = CaptureTable(ladder=(4, 16, 64), cp_size=1, context_length=4096, min_replay_bucket=64)
    assert batch([5], floored) == (16, True)


@pytest.mark.parametrize("table", [TABLE, WITHOUT_CP])
def test_unknown_lengths_run_eager_at_admission_and_raise_in_replay(table):
    assert select_replay_bucket_for_batch(None, num_tokens=16, table=table) is None
    assert not can_run_graph(None, num_tokens=16, table=table)
    with pytest.raises(ReplayError, match="lengths None"):
        load_batch(None, num_tokens=16, table=table)


def test_a_batch_that_asks_for_what_the_graphs_were_not_captured_with_runs_eager():
    table = CaptureTable(ladder=(16,), cp_size=4, context_length=64, supports=frozenset({"logprobs"}))
    how = {"num_tokens": 16, "table": table}
    assert can_run_graph([16], asks=["logprobs"], **how)
    assert not can_run_graph([16], asks=["logprobs", "hidden states"], **how)
    with pytest.raises(ReplayError, match="hidden states"):
        load_batch([16], asks=["hidden states"], **how)


@pytest.mark.parametrize("asked", ["logprobs", "hidden states"])
def test_graphs_run_a_plain_prefill_only_unless_more_is_said(asked):
    assert not can_run_graph([2048], num_tokens=2048, table=TABLE, asks=[asked])


def test_interleave_replays_too():
    table = CaptureTable(ladder=(12, 24), cp_size=4, context_length=64, strategy="interleave")
    assert load_batch([3, 9], num_tokens=12, table=table) == Replay(bucket=12, captured_rows=4, live_rows=(3,) * 4)


def test_a_server_selects_by_its_own_padding_rule_and_alignment():
    server = {"cp_size": 4, "context_length": 64}
    batches = [([10], CaptureTable(ladder=(30,), max_padding_factor=3, **server), 30)]
    batches += [([17], CaptureTable(ladder=(20,), alignment=5, **server), 20)]
    assert [batch(lengths, table) for lengths, table, _ in batches] == [(bucket, True) for *_, bucket in batches]


def test_tokens_that_are_not_the_sum_of_the_lengths_are_refused():
    with pytest.raises(InvalidInput, match="num_tokens is 17: the lengths sum to 16"):
        can_run_graph([16], num_tokens=17, table=TABLE)


def test_a_replay_with_more_live_rows_than_captured_ones_cannot_be_made():
    with pytest.raises(AssertionError, match="overflow"):
        Replay(bucket=2048, captured_rows=512, live_rows=(513, 511, 512, 512))
