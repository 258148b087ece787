"""Capture: which synthetic requests a bucket becomes, and which buckets become none."""

from dataclasses import FrozenInstanceError
from itertools import product

import pytest

from cpbcg_ref import CaptureTable, InvalidInput, capture_requests


@pytest.mark.parametrize(
    ("bucket", "options", "requests"),
    [
        (128, {"cp_size": 4, "context_length": 64}, (64, 64)),
        (16, {"cp_size": 4, "context_length": 9}, (8, 8)),
        (9, {"cp_size": 4, "context_length": 8}, ()),
        (27, {"cp_size": 4, "context_length": 9}, (9, 9, 9)),
        (26, {"cp_size": 4, "context_length": 9}, (9, 9, 8)),
        (7, {"cp_size": 4, "context_length": 64}, ()),
        (9, {"cp_size": 4, "context_length": 8, "strategy": "interleave"}, (5, 4)),
        (3, {"cp_size": 4, "context_length": 8, "strategy": "interleave"}, ()),
        (7, {"cp_size": 1, "context_length": 3}, (3, 2, 2)),
    ],
)
def test_a_bucket_is_split_into_few_equal_requests_longer_ones_first(bucket, options, requests):
    assert capture_requests(bucket, **options) == requests


@pytest.mark.parametrize(("cp_size", "context_length"), list(product([1, 2, 3], range(1, 16))))
def test_a_bucket_has_requests_exactly_when_some_number_of_legal_ones_sums_to_it(cp_size, context_length):
    shortest = 2 * cp_size
    for bucket in range(1, 64):
        counts = [k for k in range(1, bucket + 1) if shortest * k <= bucket <= k * context_length]
        split = capture_requests(bucket, cp_size=cp_size, context_length=context_length)
        assert len(split) == (counts[0] if counts else 0)
        if split:
            assert sum(split) == bucket
            assert list(split) == sorted(split, reverse=True)
            assert shortest <= split[-1] <= split[0] <= min(context_length, split[-1] + 1)


def test_the_table_drops_what_cannot_be_captured_and_knows_the_rows_of_the_rest():
    table = CaptureTable(ladder=(7, 9, 10, 27, 28), cp_size=4, context_length=9)
    assert dict(table.requests) == {9: (9,), 27: (9, 9, 9)}
    assert dict(table.bucket_local_tokens) == {9: 8, 27: 16}
    assert table.capture_num_tokens == (9, 27)


def test_rows_depend_on_the_split_and_not_on_the_bucket_alone():
    three = CaptureTable(ladder=(27,), cp_size=4, context_length=9)
    one = CaptureTable(ladder=(27,), cp_size=4, context_length=64)
    assert (three.bucket_local_tokens[27], one.bucket_local_tokens[27]) == (16, 8)


def test_without_cp_a_row_is_a_token():
    table = CaptureTable(ladder=(5, 16, 100), cp_size=1, context_length=30)
    assert dict(table.bucket_local_tokens) == {5: 5, 16: 16, 100: 100}


def test_the_alignment_of_the_engine_pads_the_captured_rows():
    table = CaptureTable(ladder=(16,), cp_size=4, context_length=64, alignment=3)
    assert dict(table.bucket_local_tokens) == {16: 6}


def test_a_ladder_of_which_nothing_can_be_captured_is_an_error_that_names_it():
    with pytest.raises(InvalidInput, match=r"ladder is \(4, 7\).*no bucket can be captured"):
        CaptureTable(ladder=(4, 7), cp_size=4, context_length=64)


def test_a_ladder_given_as_a_list_is_kept_as_a_tuple():
    ladder = [16, 32]
    table = CaptureTable(ladder=ladder, cp_size=4, context_length=64)
    ladder.append(64)
    assert table.ladder == (16, 32)
    assert {table} == {CaptureTable(ladder=(16, 32), cp_size=4, context_length=64)}


def test_a_table_cannot_be_changed_after_capture():
    table = CaptureTable(ladder=(16,), cp_size=4, context_length=64)
    with pytest.raises(TypeError):
        table.bucket_local_tokens[32] = 8
    with pytest.raises(FrozenInstanceError):
        table.cp_size = 2
