"""Input that breaks a rule is refused with the value and the rule; nothing is repaired."""

import math
import re
from dataclasses import FrozenInstanceError

import pytest

import cpbcg_ref
from cpbcg_ref import CaptureTable, CpbcgError, DelayerConfig, InvalidInput, RecentAttempts, select_replay_bucket

TABLE = CaptureTable(ladder=(16, 32), cp_size=4, context_length=64)
LAYOUT = {
    "required_local_tokens": {},
    "per_rank_logical_tokens": {},
    "is_cp_active": {},
    "local_tokens": {},
    "kv_segments": {},
}


def refused(match):
    return pytest.raises(InvalidInput, match=match)


@pytest.mark.parametrize("name", LAYOUT)
@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
@pytest.mark.parametrize("bad", [-1, 9.0, True, "9", None], ids=repr)
def test_a_length_is_a_whole_number_of_tokens(name, strategy, bad):
    with refused(rf"^lengths\[1\] is {bad!r}: a length is an integer >= 0 \(tokens\)$"):
        getattr(cpbcg_ref, name)([9, bad, 9], cp_size=4, strategy=strategy)


@pytest.mark.parametrize("name", LAYOUT)
@pytest.mark.parametrize("lengths", [9, "99", {9}, iter([9])], ids=["int", "str", "set", "iterator"])
def test_lengths_are_a_list_or_a_tuple(name, lengths):
    with refused("^lengths is .*: pass a list or tuple"):
        getattr(cpbcg_ref, name)(lengths, cp_size=4)


@pytest.mark.parametrize("name", LAYOUT)
@pytest.mark.parametrize("cp_size", [0, -4, 4.0, True, None, [4]], ids=repr)
def test_a_group_has_at_least_one_rank(name, cp_size):
    with refused(rf"^cp_size is {re.escape(repr(cp_size))}: the number of CP ranks .* integer >= 1$"):
        getattr(cpbcg_ref, name)([9], cp_size=cp_size)


@pytest.mark.parametrize("name", LAYOUT)
@pytest.mark.parametrize("strategy", ["Zigzag", "ring", "", None, ["zigzag"]], ids=repr)
def test_a_strategy_has_a_known_name(name, strategy):
    with refused("^strategy is .*: choose one of zigzag, interleave$"):
        getattr(cpbcg_ref, name)([9], cp_size=4, strategy=strategy)


@pytest.mark.parametrize("alignment", [0, -8, 8.0, True, [8]], ids=repr)
def test_an_alignment_is_at_least_one_row(alignment):
    with refused(f"^alignment is {re.escape(repr(alignment))}: the unit of physical rows is an integer >= 1$"):
        cpbcg_ref.required_local_tokens([9], cp_size=4, alignment=alignment)


def test_bad_options_are_refused_even_where_the_answer_would_be_none():
    with refused("^cp_size"):
        cpbcg_ref.required_local_tokens(None, cp_size=0)
    with refused("^strategy"):
        cpbcg_ref.is_cp_active(None, cp_size=1, strategy="ring")
    with refused("^alignment"):
        cpbcg_ref.required_local_tokens(None, cp_size=4, alignment=0)


@pytest.mark.parametrize(
    ("strategy", "lengths", "rule"),
    [
        ("zigzag", [100, 7], "every request has a token for each of its 2 x cp_size blocks"),
        ("zigzag", [], "every request has a token for each of its 2 x cp_size blocks"),
        ("interleave", [2, 1], "the batch has a token for each of cp_size ranks"),
        ("interleave", [], "the batch has a token for each of cp_size ranks"),
    ],
)
def test_what_cannot_be_sharded_is_refused_by_what_shards_it(strategy, lengths, rule):
    with refused(rf"^lengths is .*: {rule} \(cp_size 4\); run this batch without CP$"):
        cpbcg_ref.shard([0] * sum(lengths), lengths, cp_size=4, pad=0, strategy=strategy)


def test_payload_and_rows_must_be_those_of_the_batch():
    with refused(r"^len\(values\) is 8: pass one value for each of the batch's 9 tokens$"):
        cpbcg_ref.shard([0] * 8, [9], cp_size=4, pad=0)
    with refused("^rows is 2: physical rows, at least what a rank owns, is an integer >= 3$"):
        cpbcg_ref.shard([0] * 9, [9], cp_size=4, pad=0, rows=2)
    with refused(r"^rows per rank is \[3, 2\]: an all-gather takes the same number"):
        cpbcg_ref.gather([[0] * 3, [0] * 2], [5], cp_size=2)
    with refused("^rows is 2"):
        cpbcg_ref.gather([[0] * 2] * 2, [5], cp_size=2)
    with refused("^rows per rank is"):
        cpbcg_ref.gather([[0] * 3] * 3, [5], cp_size=2)


@pytest.mark.parametrize(
    ("seq_lens", "prefixes", "match"),
    [
        ([10, 10], [0, 11], r"prefixes\[1\] is 11: a cached prefix is no longer than its sequence of 10 tokens"),
        ([10], [-1], r"prefixes\[0\] is -1: a cached prefix is an integer >= 0"),
        ([10], [], r"prefixes is \[\]: pass one for each of 1 requests"),
        ([-1], [0], r"seq_lens\[0\] is -1: a sequence length is an integer >= 0"),
        ([True], [0], r"seq_lens\[0\] is True"),
    ],
)
def test_a_prefix_is_part_of_its_sequence(seq_lens, prefixes, match):
    with refused(match):
        cpbcg_ref.extend_lengths(seq_lens, prefixes=prefixes)


@pytest.mark.parametrize(("prefixes", "match"), [([1, 2], "pass one for each of 1"), ([-1], r"prefixes\[0\] is -1")])
def test_keys_need_one_prefix_per_request(prefixes, match):
    with refused(match):
        cpbcg_ref.kv_segments([9], cp_size=4, prefixes=prefixes)


LADDERS = [(), [], (32, 16), (16, 16), (0, 16), (-8, 16), (16, 32.0), (True, 16), 16, None]


@pytest.mark.parametrize("ladder", LADDERS, ids=repr)
def test_a_ladder_ascends_without_duplicates(ladder):
    with refused("^ladder is "):
        CaptureTable(ladder=ladder, cp_size=4, context_length=64)
    with refused("^capture_num_tokens is "):
        select_replay_bucket(
            num_tokens=9, required_local_tokens=8, capture_num_tokens=ladder, bucket_local_tokens={16: 8}
        )


@pytest.mark.parametrize(
    "bad",
    [
        {"num_tokens": -1},
        {"num_tokens": 9.0},
        {"required_local_tokens": -1},
        {"required_local_tokens": True},
        {"max_padding_factor": math.nan},
        {"max_padding_factor": math.inf},
        {"max_padding_factor": 0.5},
        {"max_padding_factor": True},
        pytest.param({"max_padding_factor": 10**309}, id="an integer beyond all floats"),
        {"min_replay_bucket": -1},
        {"min_replay_bucket": 16.0},
        {"bucket_local_tokens": {16: -8}},
        {"bucket_local_tokens": {16: None}},
    ],
    ids=str,
)
def test_the_selector_refuses_numbers_that_no_server_has(bad):
    good = {
        "num_tokens": 9,
        "required_local_tokens": 8,
        "capture_num_tokens": [16],
        "bucket_local_tokens": {16: 8},
    }
    assert select_replay_bucket(**good) == 16
    with refused(f"^{next(iter(bad))}"):
        select_replay_bucket(**good | bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"cp_size": 0},
        {"context_length": 0},
        {"context_length": 64.0},
        {"strategy": "ring"},
        {"strategy": ["zigzag"]},
        {"cp_size": [4]},
        {"alignment": 0},
        {"max_padding_factor": math.nan},
        {"min_replay_bucket": -1},
    ],
    ids=str,
)
def test_a_capture_table_refuses_settings_that_no_server_has(bad):
    with refused(f"^{next(iter(bad))} is"):
        CaptureTable(**{"ladder": (16,), "cp_size": 4, "context_length": 64} | bad)


@pytest.mark.parametrize("bad", [0, -8, 8.0, True], ids=repr)
def test_a_bucket_to_split_is_a_whole_number_of_tokens(bad):
    with refused("^bucket is"):
        cpbcg_ref.capture_requests(bad, cp_size=4, context_length=64)


@pytest.mark.parametrize("num_tokens", [17, -1, 16.5, True], ids=repr)
@pytest.mark.parametrize("ask", [cpbcg_ref.can_run_graph, cpbcg_ref.load_batch])
def test_the_tokens_of_a_batch_are_the_sum_of_its_lengths(ask, num_tokens):
    with refused(f"^num_tokens is {num_tokens}"):
        ask([16], num_tokens=num_tokens, table=TABLE)


@pytest.mark.parametrize("ask", [cpbcg_ref.can_run_graph, cpbcg_ref.load_batch])
def test_a_negative_length_does_not_pass_for_an_inactive_batch(ask):
    with refused(r"^lengths\[1\] is -9"):
        ask([25, -9], num_tokens=16, table=TABLE)


@pytest.mark.parametrize(
    "bad",
    [
        {"dp_size": 0},
        {"dp_size": True},
        {"max_delay_passes": -1},
        {"max_delay_passes": 3.0},
        {"max_running_requests": 0},
        {"max_delay_ms": -1},
        {"max_delay_ms": math.nan},
        {"max_delay_ms": None},
        {"queue_min_ratio": math.nan},
        {"queue_min_ratio": math.inf},
        {"queue_min_ratio": -0.5},
        {"queue_min_ratio": True},
        pytest.param({"queue_min_ratio": 10**309}, id="an integer beyond all floats"),
        {"queue_min_ratio": "0.5"},
        {"prefill_max_requests": 0},
        {"prefill_max_requests": 4.0},
        {"token_usage_low_watermark": -0.1},
        {"token_usage_low_watermark": math.nan},
        {"enable_dp_attention": 1},
        {"policy": "soft"},
        {"policy": ["seed"]},
    ],
    ids=str,
)
def test_a_delayer_refuses_settings_that_no_server_has(bad):
    ((name, value),) = bad.items()
    with refused(f"^{name} is {re.escape(repr(value))}: "):
        DelayerConfig(**{"dp_size": 2, "max_delay_passes": 3, "max_running_requests": 8} | bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"prefillable": 1},
        {"token_usage": math.nan},
        {"token_usage": -0.1},
        {"running_batch": -1},
        {"max_prefill_bs": 1.0},
        {"waiting_queue_len": True},
        {"now_ms": math.nan},
        {"chunk_in_progress": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", ["seed", "hardened"])
def test_a_rank_refuses_to_report_what_cannot_be(bad, policy):
    config = DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8, policy=policy)
    good = {"now_ms": 0.0, "prefillable": False, "token_usage": 1.0}
    with refused(f"^{next(iter(bad))} is"):
        cpbcg_ref.make_report(cpbcg_ref.DelayerState(), config, **good | bad)


@pytest.mark.parametrize("bad", [{"admitted": -1}, {"queue": True}, {"free_slots": 1.0}], ids=str)
def test_an_attempt_counts_whole_requests(bad):
    with refused(f"^{next(iter(bad))} is"):
        RecentAttempts().after(**bad)


CONFIG = DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8)
FROZEN = [
    TABLE,
    cpbcg_ref.load_batch([16], num_tokens=16, table=TABLE),
    CONFIG,
    cpbcg_ref.DelayerState(),
    cpbcg_ref.make_report(cpbcg_ref.DelayerState(), CONFIG, now_ms=0.0, prefillable=True, token_usage=1.0),
    cpbcg_ref.Decision(allow=True, reason="", state=cpbcg_ref.DelayerState()),
    RecentAttempts(),
]


@pytest.mark.parametrize("value", FROZEN, ids=lambda value: type(value).__name__)
def test_a_value_that_was_checked_cannot_be_changed(value):
    name = next(iter(vars(value)))
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, getattr(value, name))


def test_one_base_class_catches_everything_and_bad_input_is_a_value_error():
    assert issubclass(InvalidInput, CpbcgError)
    assert issubclass(InvalidInput, ValueError)
