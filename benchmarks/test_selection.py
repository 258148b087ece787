"""The search of the bucket in a long ladder, and the whole decision about a batch."""

from random import Random

import pytest

from cpbcg_ref import CaptureTable, can_run_graph, cases
from cpbcg_ref.replay import smallest_bucket

LADDER = tuple(range(16, 8193, 16))


def scan(num_tokens, required, buckets, rows, factor, floor):
    """The selector without a search: every bucket is looked at until one will do."""
    most = max(factor * num_tokens, floor)
    able = (b for b in buckets if num_tokens <= b <= most and rows.get(b, -1) >= required)
    return next(able, None)


def asked(function, rows):
    """The function, asked for totals from all over the ladder that need a few rows more than an even share."""
    draw = Random(0)
    totals = [draw.randrange(1, 8193) for _ in range(400)]
    return lambda: [function(tokens, tokens // 4 + 2, LADDER, rows, 2, 0) for tokens in totals]


@pytest.fixture
def table():
    table = CaptureTable(ladder=LADDER, cp_size=4, context_length=8192)
    assert len(table.capture_num_tokens) == 512
    return table


def test_a_bucket_of_512_over_a_scan(faster, table):
    sides = {
        "ours": asked(smallest_bucket, table.bucket_local_tokens),
        "theirs": asked(scan, table.bucket_local_tokens),
    }
    assert sides["ours"]() == sides["theirs"]()
    faster("a bucket of 512, over a scan of the ladder", least=10, unit=400, **sides)


def test_a_bucket_of_512_over_the_release(faster, table, sglang):
    chooser = object.__new__(sglang.capacity.input)
    chooser.bucket_local_tokens, ladder = dict(table.bucket_local_tokens), list(LADDER)

    def theirs(tokens, rows, *_):
        question = {"num_tokens": tokens, "required_local_tokens": rows, "capture_num_tokens": ladder}
        return chooser.select_replay_bucket(**question, max_padding_factor=2)

    ours, theirs = asked(smallest_bucket, table.bucket_local_tokens), asked(theirs, None)
    assert ours() == theirs()
    faster("a bucket of 512, over SGLang's scan, which stops at the bound", ours=ours, theirs=theirs, least=1, unit=400)


@pytest.mark.parametrize(("requests", "cp_size", "least"), [(64, 8, 10)])
def test_a_whole_decision(faster, sglang, requests, cp_size, least):
    """Required rows, selection and admission; the release's batches are made beforehand, as its scheduler has them."""
    ladder, draw = tuple(range(256, 8193, 256)), Random(0)
    batches = [tuple(draw.randrange(2 * cp_size, 220) for _ in range(requests)) for _ in range(10)]
    totals = [sum(batch) for batch in batches]
    table = CaptureTable(ladder=ladder, cp_size=cp_size, context_length=8192)
    server = sglang.start(cases.Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=8192))
    whole = [cases.Batch(lengths=batch, prefixes=(0,) * requests) for batch in batches]
    forwards, runner = [server._batch(batch, 0) for batch in whole], server.runners[0]

    def ours():
        pairs = zip(batches, totals, strict=True)
        return [can_run_graph(batch, num_tokens=tokens, table=table) for batch, tokens in pairs]

    def theirs():
        return [runner.can_run_graph(forward) for forward in forwards]

    assert ours() == theirs()
    assert any(ours())
    name = f"a whole decision, {requests} requests, cp {cp_size}, over SGLang's `can_run_graph`"
    faster(name, ours=ours, theirs=theirs, least=least, unit=len(batches))
