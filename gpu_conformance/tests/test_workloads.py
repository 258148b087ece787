"""What is offered: edges, big beside small, chunks, and prompts of traces, also of files that are none."""

import pytest

from cpbcg_ref.cases import Server
from cpbcg_ref.errors import InvalidInput
from gpu_conformance import traces, workloads

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
    (offer,) = [workloads.Requests(slots=400).offer(batch) for batch in workloads.golden(SERVER)]
    slots = [slot for request in offer.requests for slot in request.slots]
    assert len(set(slots)) == len(slots)
    assert 0 not in slots


def test_prompts_are_packed_in_order_and_long_ones_left_out():
    batches = workloads.packed([10, 90, 30, 30, 20], most=64, longest=256)
    assert [batch.lengths for batch in batches] == [(10, 30), (30, 20)]


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
