"""What a reader of a refusal sees, whole: name, value, rule. And the values at the very edge of a rule, which pass."""

import re
import sys
from functools import partial

import pytest

from cpbcg_ref import (
    CaptureTable,
    DelayerConfig,
    DelayerState,
    InvalidInput,
    Replay,
    capture_requests,
    gather,
    kv_segments,
    local_tokens,
    make_report,
    negotiate,
    select_replay_bucket,
    select_replay_bucket_for_batch,
    shard,
)

PER_REQUEST = "pass a list or tuple with one number of tokens per request"
BUCKETS = "pass a list or tuple of buckets, at least one, each an integer >= 1 (tokens)"
ASCENDING = "buckets ascend and none comes twice; sort them and drop duplicates"
TOO_SHORT = "every request has a token for each of its 2 x cp_size blocks (cp_size 4); run this batch without CP"
ROWS = "physical rows, at least what a rank owns, is an integer >= 3"
BATCH = {"num_tokens": 9, "required_local_tokens": 8, "capture_num_tokens": [16], "bucket_local_tokens": {16: 8}}
ROW = {"now_ms": 0.0, "prefillable": True, "token_usage": 1.0}

table = partial(CaptureTable, cp_size=4, context_length=64)
delayer = partial(DelayerConfig, dp_size=1, max_delay_passes=3, max_running_requests=8)
selected = partial(select_replay_bucket, **BATCH)
split = partial(capture_requests, cp_size=4)
report = partial(make_report, DelayerState(), delayer(), **ROW)


def decide(*rows, now_ms=0.0, config):
    return negotiate(rows, DelayerState(), config, now_ms=now_ms)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: delayer(max_running_requests=0), "max_running_requests is 0: it is an integer >= 1"),
        (lambda: delayer(max_delay_ms=-1), "max_delay_ms is -1: it is a finite number >= 0"),
        (lambda: delayer(enable_dp_attention=1), "enable_dp_attention is 1: it is True or False"),
        (lambda: delayer(policy="soft"), "policy is 'soft': choose seed or hardened"),
        (lambda: local_tokens(9, cp_size=4), f"lengths is 9: {PER_REQUEST}"),
        (lambda: local_tokens([9], cp_size=4, strategy="ring"), "strategy is 'ring': choose one of zigzag, interleave"),
        (lambda: shard([0] * 9, [7, 2], cp_size=4, pad=0), f"lengths is [7, 2]: {TOO_SHORT}"),
        (lambda: gather([[0] * 2] * 2, [5], cp_size=2), f"rows is 2: {ROWS}"),
        (
            lambda: kv_segments([9], cp_size=4, prefixes=[-1]),
            "prefixes[0] is -1: a cached prefix is an integer >= 0 (tokens)",
        ),
        (lambda: table(ladder=(0, 16)), f"ladder is (0, 16): {BUCKETS}"),
        (lambda: table(ladder=(16, 16)), f"ladder is (16, 16): {ASCENDING}"),
        (lambda: split(0, context_length=9), "bucket is 0: a bucket (tokens) is an integer >= 1"),
        (lambda: split(9, context_length=0), "context_length is 0: the longest request (tokens) is an integer >= 1"),
        (
            lambda: table(ladder=(16,), max_padding_factor=0.5),
            "max_padding_factor is 0.5: the largest bucket over its batch is a finite number >= 1",
        ),
        (
            lambda: table(ladder=(16,), min_replay_bucket=-1),
            "min_replay_bucket is -1: the floor of the padding rule (0: none) is an integer >= 0",
        ),
        (lambda: selected(num_tokens=-1), "num_tokens is -1: the tokens of the batch is an integer >= 0"),
        (
            lambda: select_replay_bucket_for_batch(None, num_tokens=-1, table=table(ladder=(16,))),
            "num_tokens is -1: the tokens of the batch is an integer >= 0",
        ),
        (
            lambda: selected(bucket_local_tokens={16: -8}),
            "bucket_local_tokens[0] is -8: the rows of a bucket is an integer >= 0 (tokens)",
        ),
        (
            lambda: selected(required_local_tokens=-1),
            "required_local_tokens is -1: the rows that every rank needs is an integer >= 0",
        ),
    ],
)
def test_the_text_of_a_refusal(call, text):
    with pytest.raises(InvalidInput, match=f"^{re.escape(text)}$"):
        call()


def test_the_culprit_is_the_negative_length_and_not_the_empty_one_before_it():
    with pytest.raises(InvalidInput, match=r"^lengths\[1\] is -1: "):
        local_tokens([0, -1], cp_size=4)


def test_ranks_configured_differently_are_told_both_fingerprints():
    ours, theirs = delayer(), delayer(max_delay_passes=4)
    row = make_report(DelayerState(), theirs, **ROW)
    text = f"fingerprint 0 is {theirs.fingerprint}: here it is {ours.fingerprint}; configure all ranks alike"
    with pytest.raises(InvalidInput, match=f"^{text}$"):
        decide(row, config=ours)


def test_a_rank_that_is_not_ready_is_told_so_by_a_bool_too():
    with pytest.raises(InvalidInput, match=r"^prefillable is 0: it is True or False$"):
        report(prefillable=0)


def test_a_pass_without_a_clock_is_refused():
    with pytest.raises(InvalidInput, match=r"^now_ms is nan"):
        decide(report(), now_ms=float("nan"), config=delayer())


@pytest.mark.parametrize(
    "settings", [{"max_delay_ms": sys.float_info.max}, {"prefill_max_requests": 1}, {"max_delay_passes": 0}], ids=str
)
def test_a_delayer_may_be_configured_up_to_the_edge(settings):
    assert vars(delayer(**settings)).items() >= settings.items()


def test_the_smallest_bucket_is_one_token():
    assert selected(num_tokens=1, required_local_tokens=1, capture_num_tokens=[1], bucket_local_tokens={1: 1}) == 1


def test_a_replay_may_fill_every_captured_row():
    assert Replay(bucket=16, captured_rows=8, live_rows=(8, 8)).live_rows == (8, 8)
