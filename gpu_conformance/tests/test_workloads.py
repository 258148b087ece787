"""What is offered: edges, big beside small, chunks, and prompts of traces, also of files that are none."""

import os
from pathlib import Path

import pytest

from cpbcg_ref import CaptureTable, required_local_tokens, select_replay_bucket_for_batch
from cpbcg_ref.cases import Server
from cpbcg_ref.errors import InvalidInput
from gpu_conformance import traces, workloads
from gpu_conformance.scenarios import Asked, groups

SERVER = Server(cp_size=2, capture_num_tokens=(32, 64), context_length=256)


def test_big_then_small_then_big_in_each_bucket():
    totals = [batch.num_tokens for batch in workloads.big_small_big(SERVER)]
    assert totals == [32, 17, 32, 64, 33, 64]


def test_edges_fill_buckets_and_bring_prefixes():
    made = list(workloads.edges(SERVER, batches=40, seed=0, most=1000))
    assert len(made) == 40
    assert any(0 <= 64 - batch.num_tokens < 4 for batch in made)
    assert any(any(batch.prefixes) for batch in made)


def test_the_same_seed_offers_the_same():
    one, other = (list(workloads.edges(SERVER, batches=5, seed=3, most=1000)) for _ in range(2))
    assert one == other


def test_chunks_of_a_prompt_stand_on_what_was_cached():
    offers = list(workloads.Requests(slots=400).chunked((10, 25), chunk=10))
    sizes = [[(one.prefix, len(one.tokens)) for one in offer.requests] for offer in offers]
    assert sizes == [[(0, 10), (0, 10)], [(10, 20)], [(20, 25)]]
    assert [offer.chunked for offer in offers] == [False, True, True]
    assert offers[1].requests[0].slots[:10] == offers[0].requests[1].slots


def test_no_two_tokens_share_a_slot_and_none_is_scratch():
    (offer, *_) = [workloads.Requests(slots=600).offer(batch) for batch in workloads.several_with_prefixes(SERVER)]
    slots = [slot for request in offer.requests for slot in request.slots]
    assert len(set(slots)) == len(slots)
    assert 0 not in slots


def test_what_must_not_be_left_to_chance_is_there():
    totals = [batch.num_tokens for batch in workloads.fixed(SERVER)]
    assert totals[-2:] == [3, 68]  # too short for two ranks, over every bucket


@pytest.mark.parametrize("cp_size", [2, 4, 8])
def test_every_bucket_of_the_default_ladder_has_a_batch_that_overflows_it(cp_size):
    server = Server(
        cp_size=cp_size, capture_num_tokens=tuple(cp_size * n for n in (16, 24, 32, 48)), context_length=512
    )
    made = list(workloads.overflows(server))
    table = CaptureTable(ladder=server.capture_num_tokens, cp_size=cp_size, context_length=512)
    assert [sum(lengths) for lengths in made] == list(server.capture_num_tokens)
    for lengths in made:
        assert required_local_tokens(lengths, cp_size=cp_size) > table.bucket_local_tokens[sum(lengths)]


def test_a_ladder_that_cannot_overflow_has_no_such_batch():
    assert not list(workloads.overflows(Server(cp_size=4, capture_num_tokens=(12,), context_length=512)))


def test_golden_batches_take_the_buckets_of_the_specification():
    server = Server(cp_size=4, capture_num_tokens=workloads.GOLDEN_LADDER, context_length=workloads.GOLDEN_CONTEXT)
    table = CaptureTable(ladder=server.capture_num_tokens, cp_size=4, context_length=server.context_length)
    batches = [batch.lengths for batch in workloads.golden(server)]
    chosen = [
        select_replay_bucket_for_batch(lengths=lengths, num_tokens=sum(lengths), table=table) for lengths in batches
    ]
    assert dict(zip(batches, chosen, strict=True))[(1534, 161, 353)] == 2304
    assert sorted(chosen) == [2304, 2304, 2560]


def test_no_request_is_longer_than_the_context():
    server = Server(cp_size=2, capture_num_tokens=(32, 64), context_length=20)
    made = [*workloads.fixed(server), *workloads.big_small_big(server), *workloads.several_with_prefixes(server)]
    assert all(sum(pair) <= 20 for batch in made for pair in zip(batch.lengths, batch.prefixes, strict=True))


def test_prompts_are_packed_in_order_and_long_ones_are_cut():
    batches = list(workloads.packed([10, 90, 30, 30, 20], budget=64))
    assert batches == [[(10, 0, 10)], [(90, 0, 64)], [(90, 64, 90), (30, 0, 30)], [(30, 0, 30), (20, 0, 20)]]


def test_a_batch_may_be_filled_to_the_last_token_and_no_further():
    assert list(workloads.packed([10, 22, 5], budget=32)) == [[(10, 0, 10), (22, 0, 22)], [(5, 0, 5)]]


def test_a_prompt_that_goes_on_keeps_its_slots_and_nobody_else_gets_them():
    offers = list(workloads.Requests(slots=200).prefilled([10, 90, 30, 30], budget=64, batches=9))
    first, rest = offers[1].requests[0], offers[2].requests
    assert (rest[0].prefix, rest[0].slots[:64]) == (64, first.slots)
    assert not set(rest[0].slots) & set(rest[1].slots)


def test_no_more_batches_than_asked_are_cut_from_a_trace():
    assert len(list(workloads.Requests(slots=200).prefilled([10] * 50, budget=32, batches=3))) == 3


def test_both_formats_of_traces_are_read(tmp_path):
    azure, mooncake = tmp_path / "a.csv", tmp_path / "m.jsonl"
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    mooncake.write_text('{"timestamp": 0, "input_length": 6758, "output_length": 500}\n\n')
    assert list(traces.prompts(azure)) == [4808]
    assert list(traces.prompts(mooncake)) == [6758]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "has the columns"),
        ("ContextTokens\n0\n", "2: prompt length '0'"),
        ("ContextTokens\nmany\n", "2: prompt length 'many'"),
        ('{"input_length": -3}\n', "1: prompt length -3"),
        ('{"length": 3}\n', "1: is no request"),
        ("{\n", "1: is no request"),
    ],
)
def test_a_file_that_is_no_trace_is_told_with_its_line(tmp_path, text, told):
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=told):
        list(traces.prompts(file))


def test_a_trace_that_is_missing_is_told(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(traces.prompts(tmp_path / "none"))


TRACES = Path(os.environ.get("CPBCG_TRACES", "traces"))


@pytest.mark.parametrize("pattern", ["Azure*.csv", "mooncake*.jsonl"])
def test_slices_of_real_traces_are_read_to_the_last_line(pattern):
    files = sorted(TRACES.glob(pattern))
    if not files:
        pytest.skip(f"no {pattern} in {TRACES}: set CPBCG_TRACES to a folder with traces")
    for file in files:
        assert len(list(traces.prompts(file))) == sum(1 for line in file.open() if line[:1] in "{123456789")


def test_prompts_over_the_context_are_counted_and_told(tmp_path):
    file, told = tmp_path / "t.csv", []
    file.write_text("ContextTokens\n50\n2000\n60\n")
    (group,) = groups(Asked(driver="lockstep", cp_sizes=(2,), arithmetic="exact", trace=file), tell=told.append)
    assert told == ["t.csv: 1 of 3 prompts are left out: over 1024 tokens"]
    assert [[len(one.tokens) for one in offer.requests] for offer in group.offers] == [[50], [60]]


def test_a_trace_of_which_nothing_fits_is_told(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("ContextTokens\n2000\n")
    with pytest.raises(InvalidInput, match="no prompt fits the context of 1024 tokens"):
        groups(Asked(driver="lockstep", trace=file))
