"""Capture ladders: what can fall back, and what to capture instead, against every batch of small sizes."""

import doctest
import json
import time
from functools import cache
from importlib import resources
from itertools import combinations, product
from random import Random

import jsonschema
import pytest

from cpbcg_ref import (
    CaptureTable,
    InvalidInput,
    can_run_graph,
    capture_requests,
    per_rank_logical_tokens,
    required_local_tokens,
)
from cpbcg_ref.cli import main
from cpbcg_ref.ladder import Fallback, analyse_ladder, analysis, needs, shape
from cpbcg_ref.ladder.cover import cheapest
from cpbcg_ref.ladder.needs import most, of_rank, rows, smallest
from cpbcg_ref.ladder.shape import Shape

SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("ladder.schema.json").read_text())
# What SGLang 0.5.23 captures for a chunk of 8192 tokens (generate_prefill_cuda_graph_batch_sizes).
PARTS = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, 8193, 512))
SGLANG = [bucket for part in PARTS for bucket in range(*part)]


@cache
def batches(total, shortest, longest):
    """Every batch of so many tokens, ascending lengths from `shortest` to `longest`."""
    found = [(total,)] if shortest <= total <= longest else []
    firsts = range(shortest, min(longest, total // 2) + 1)
    return found + [(first, *rest) for first in firsts for rest in batches(total - first, first, longest)]


def active(total, shape):
    shortest = 2 * shape.cp_size if shape.strategy == "zigzag" else 1
    limit = shape.max_requests or total
    found = batches(total, shortest, shape.context_length) if total >= shape.cp_size else []
    return [batch for batch in found if len(batch) <= limit]


def order(batch):
    return sum(batch), len(batch), batch


def runs(batch, table):
    return can_run_graph(batch, num_tokens=sum(batch), table=table)


SHAPES = [
    Shape(cp_size=n, context_length=context, max_requests=requests)
    for n, top in ((2, 4), (3, 6), (4, 8))
    for context in (top, top + 1, 2 * top - 1, 2 * top, 2 * top + 3, 200)
    for requests in (None, 1, 2, 3, 4)
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: f"{one.cp_size}-{one.context_length}-{one.max_requests}")
def test_the_rows_of_the_worst_batch_and_the_smallest_that_needs_as_many_are_those_of_all_batches(shape):
    for total in range(38 if shape.cp_size == 2 else 48):
        needs = {batch: max(per_rank_logical_tokens(batch, cp_size=shape.cp_size)) for batch in active(total, shape)}
        assert rows(shape, total) == shape.aligned(max(needs.values(), default=0))
        if needs:
            worst = max(needs.values())
            assert most(shape, total) == worst
            for above in {-1, 0, worst // 2, worst - 2, worst - 1}:
                expected = min((batch for batch, need in needs.items() if need > above), key=order)
                assert smallest(shape, total, above=above) == expected


@pytest.mark.parametrize(("cp_size", "context"), [(2, 5), (2, 9), (3, 7), (3, 16), (4, 14), (4, 19), (5, 18), (5, 64)])
def test_the_most_rows_of_each_rank_by_number_of_requests_are_those_of_all_batches(cp_size, context):
    shape = Shape(cp_size=cp_size, context_length=context)
    for total in range(2 * cp_size, 40 + 6 * cp_size):
        expected = {}
        for batch in active(total, shape):
            ranks = expected.setdefault(len(batch), [-1] * cp_size)
            ranks[:] = map(max, ranks, per_rank_logical_tokens(batch, cp_size=cp_size))
        for count in range(1, total // (2 * cp_size) + 2):
            found = [of_rank(shape, rank, count, total) for rank in range(cp_size)]
            assert found == expected.get(count, [-1] * cp_size), (total, count)


def by_knapsack(shape, totals):
    """The largest rank's rows by total, over all batches: one request more, of every length, on every rank."""
    n, lengths = shape.cp_size, range(2 * shape.cp_size, shape.context_length + 1)
    loads = {length: per_rank_logical_tokens([length], cp_size=n) for length in lengths}
    best, found = {0: [0] * n}, {}
    for _ in range(shape.max_requests or totals // (2 * n)):
        more = {}
        for total, old in best.items():
            for length in range(2 * n, min(shape.context_length, totals - total) + 1):
                new = more.setdefault(total + length, [0] * n)
                new[:] = map(max, new, map(sum, zip(old, loads[length], strict=True)))
        best = more
        for total, ranks in best.items():
            found[total] = max(found.get(total, 0), *ranks)
    return found


@pytest.mark.parametrize(
    ("cp_size", "context", "requests", "totals"),
    [(3, 37, 5, 190), (5, 23, 6, 140), (4, 60, 4, 240), (8, 24, 9, 220), (8, 31, None, 200), (6, 60, 3, 180)],
)
def test_larger_totals_have_the_rows_of_a_plain_dynamic_program(cp_size, context, requests, totals):
    shape = Shape(cp_size=cp_size, context_length=context, max_requests=requests)
    expected = by_knapsack(shape, totals)
    assert {total: most(shape, total) for total in range(totals + 1) if shape.requests(total)} == expected


@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
@pytest.mark.parametrize(("cp_size", "context"), [*product((2, 3, 4), (8, 9, 17, 29, 500))])
def test_a_bucket_holds_what_the_capture_table_says(cp_size, context, strategy):
    shape = Shape(cp_size=cp_size, context_length=context, strategy=strategy)
    group = {"cp_size": cp_size, "strategy": strategy}
    for bucket in range(1, 160):
        split = capture_requests(bucket, context_length=context, **group)
        assert shape.captured(bucket) == (required_local_tokens(split, **group) or 0)


LADDERS = [
    {"cp_size": 2, "context_length": 64, "ladder": (4, 15, 20, 32, 48)},
    {"cp_size": 2, "context_length": 5, "ladder": (9, 15, 16, 25, 50), "max_tokens": 40},
    {"cp_size": 2, "context_length": 4, "ladder": (4, 12, 41, 42, 44)},
    {"cp_size": 2, "context_length": 7, "ladder": (15, 21, 35, 48), "max_padding_factor": 1.5, "max_requests": 6},
    {"cp_size": 3, "context_length": 64, "ladder": (6, 7, 21, 22, 49), "max_padding_factor": 1.25},
    {"cp_size": 3, "context_length": 20, "ladder": (19, 33, 66), "max_requests": 3, "max_tokens": 60},
    {"cp_size": 4, "context_length": 9, "ladder": (27, 28, 36, 48, 54), "max_tokens": 54},
    {"cp_size": 4, "context_length": 9, "ladder": (8, 27), "max_padding_factor": 1, "max_tokens": 60},
    {"cp_size": 4, "context_length": 64, "ladder": (16, 27, 32, 64)},
    {"cp_size": 4, "context_length": 64, "ladder": (40, 44, 48, 50), "max_padding_factor": 1},
    {"cp_size": 4, "context_length": 14, "ladder": (2, 15, 28), "strategy": "interleave", "max_requests": 2},
]


def analysed(told):
    found = analyse_ladder(told["ladder"], **{name: value for name, value in told.items() if name != "ladder"})
    shape = found.shape
    group = {"cp_size": shape.cp_size, "context_length": shape.context_length, "strategy": shape.strategy}
    return found, group | {"max_padding_factor": found.max_padding_factor}


@pytest.mark.parametrize("told", LADDERS, ids=str)
def test_what_falls_back_is_what_admission_refuses_of_all_batches(told):
    found, group = analysed(told)
    table = CaptureTable(ladder=told["ladder"], **group)
    refused = {}
    for total in range(found.always_from):
        if eager := [batch for batch in active(total, found.shape) if not runs(batch, table)]:
            refused[total] = min(eager, key=order)
    covered = [total for one in found.fallbacks for total in range(one.totals[0], one.totals[1] + 1)]
    assert covered == [*refused]
    for one in found.fallbacks:
        assert one.batch == refused[one.totals[0]]
        assert one.rows == required_local_tokens(one.batch, cp_size=group["cp_size"], strategy=group["strategy"])
        near = [bucket for bucket in table.capture_num_tokens if one.totals[0] <= bucket]
        near = [bucket for bucket in near if bucket <= found.max_padding_factor * one.totals[0]]
        assert one.why == ("rows" if near else "tokens")
        assert one.held == max((table.bucket_local_tokens[bucket] for bucket in near), default=None)
        assert one.to_serve == (one.totals[1] <= found.to_serve[1])
    served = range(found.to_serve[0], found.to_serve[1] + 1)
    assert found.can_fall_back == any(total in refused for total in served)
    assert all(not runs(batch, table) for batch in active(found.always_from, found.shape))


@pytest.mark.parametrize("told", LADDERS, ids=str)
def test_no_batch_falls_back_with_what_is_proposed_unless_no_bucket_could_run_it(told):
    found, group = analysed(told)
    hopeless = {total for first, last in found.unservable for total in range(first, last + 1)}
    tables = [CaptureTable(ladder=(*one.captured,), **group) for one in (found.smallest, found.extended)]
    for table, one in zip(tables, (found.smallest, found.extended), strict=True):
        assert dict(table.bucket_local_tokens) == one.captured
        assert (one.rows, one.more_rows) == (sum(one.captured.values()), one.rows - found.given.rows)
    assert {*found.given.captured} <= {*found.extended.captured}
    for total in range(found.to_serve[0], found.to_serve[1] + 1):
        for table in tables if total not in hopeless else ():
            assert all(runs(batch, table) for batch in active(total, found.shape))
        if total in hopeless:
            worst = max(
                active(total, found.shape), key=lambda batch: required_local_tokens(batch, cp_size=group["cp_size"])
            )
            near = range(total, int(found.max_padding_factor * total) + 1)
            able = [bucket for bucket in near if capture_requests(bucket, **without(group, "max_padding_factor"))]
            assert not any(runs(worst, CaptureTable(ladder=(bucket,), **group)) for bucket in able)


def without(told, name):
    return {key: value for key, value in told.items() if key != name}


@pytest.mark.parametrize(
    ("cp_size", "context", "factor", "last"),
    [(2, 64, 2, 30), (2, 9, 1.5, 22), (3, 64, 2, 40), (3, 13, 2, 44), (4, 64, 1.5, 40), (4, 16, 2, 44), (4, 9, 2, 40)],
)
def test_no_ladder_of_fewer_buckets_or_as_many_with_fewer_rows_serves_the_same(cp_size, context, factor, last):
    """By trying all of them, each bucket known by the totals of which it runs every batch."""
    told = {"cp_size": cp_size, "context_length": context, "max_padding_factor": factor}
    given = (2 * cp_size, 4 * cp_size)
    found = analyse_ladder(given, **told, max_tokens=last)
    assert found.is_smallest == (context >= 4 * cp_size)
    cheapest, own = {}, {}
    for bucket in range(2 * cp_size, int(factor * last) + 1):
        if not capture_requests(bucket, cp_size=cp_size, context_length=context):
            continue
        table = CaptureTable(ladder=(bucket,), **told)
        near = range(2 * cp_size, min(bucket, last) + 1)
        sizes = {total: active(total, found.shape) for total in near}
        serves = frozenset(n for n, some in sizes.items() if some and all(runs(batch, table) for batch in some))
        own[bucket] = serves
        held = table.bucket_local_tokens[bucket]
        cheapest[serves] = min(cheapest.get(serves, held), held)
    everything = frozenset().union(*cheapest)
    for proposal, there, fixed in ((found.smallest, frozenset(), 0), (found.extended, given, found.given.rows)):
        base = frozenset().union(*(own[bucket] for bucket in there))
        best = least_cover(cheapest, everything - base)
        cost = len(proposal.captured) - len(there), proposal.rows - fixed
        assert cost == best if found.is_smallest else cost >= best


def least_cover(buckets, wanted):
    """(buckets, rows) of the cheapest that serve all wanted, of those that are in no other's shadow."""
    for count in range(len(wanted) + 1):
        chosen = [some for some in combinations(buckets, count) if wanted <= frozenset().union(*some)]
        if chosen:
            return count, min(sum(buckets[one] for one in some) for some in chosen)
    raise AssertionError("everything can be served by all of them")


def test_a_cover_has_the_fewest_buckets_and_of_those_the_fewest_rows():
    rng = Random(0)
    both = 0
    for _ in range(300):
        spans = sorted(tuple(sorted(rng.choices(range(7), k=2))) for _ in range(7))
        made = [(first, last, rng.choice((1, 2, 9)), bucket) for bucket, (first, last) in enumerate(spans)]
        held = {bucket: rows for _, _, rows, bucket in made}
        serves = {bucket: {*range(first, last + 1)} for first, last, _, bucket in made}
        wanted = set().union(*serves.values())
        ways = [some for count in range(8) for some in combinations(held, count)]
        costs = [
            (len(some), sum(map(held.get, some))) for some in ways if wanted <= set().union(*map(serves.get, some))
        ]
        found = cheapest(7, iter(made))
        assert wanted <= set().union(*map(serves.get, found))
        assert (len(found), sum(map(held.get, found))) == min(costs)
        both += min(costs)[1] > min(rows for _, rows in costs)
    assert both > 20, "fewest buckets and fewest rows were mostly the same ladder"


def test_the_default_buckets_of_sglang_serve_half_their_largest_and_not_much_more_than_two_thirds():
    found = analyse_ladder(SGLANG, cp_size=4, context_length=131072)
    assert (found.dropped, found.to_serve, found.can_fall_back) == ((4,), (8, 4096), False)
    [only] = found.fallbacks
    assert (only.totals, only.batch, only.rows, only.held) == ((6147, 8192), (9,) * 683, 2056, 2048)
    more = analyse_ladder(SGLANG, cp_size=4, context_length=131072, max_tokens=8192)
    assert {*more.extended.captured} - {*SGLANG} == {10913}


def test_a_ladder_of_512_buckets_and_totals_up_to_100000_take_seconds():
    began = time.process_time()
    found = analyse_ladder(tuple(range(195, 512 * 195 + 1, 195)), cp_size=8, context_length=131072, max_tokens=100000)
    assert len(found.given.captured) == 512
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ladder": ()}, "ladder is ()"),
        ({"ladder": (16, 8)}, "buckets ascend"),
        ({"ladder": (4, 7)}, "no bucket can be captured"),
        ({"ladder": (16, 2**21)}, "the largest total is 2097152: each up to it is looked at: at most 1048576"),
        ({"cp_size": 1}, "cp_size is 1"),
        ({"cp_size": 2.0}, "cp_size is 2.0"),
        ({"context_length": 7}, "context_length is 7: every request has a token for each of its 2 x cp_size blocks"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"max_tokens": 7}, "max_tokens is 7: the most tokens of a batch to serve is an integer >= 8"),
        ({"max_padding_factor": 0.5}, "max_padding_factor is 0.5"),
        ({"max_padding_factor": float("inf")}, "max_padding_factor is inf"),
        ({"strategy": "ring"}, "strategy is 'ring': choose one of zigzag, interleave"),
        ({"strategy": []}, "strategy is []: choose one of"),
    ],
    ids=str,
)
def test_what_no_server_can_have_is_refused(wrong, message):
    told = {"ladder": (16, 32), "cp_size": 4, "context_length": 64} | wrong
    with pytest.raises(InvalidInput) as refused:
        analyse_ladder(told.pop("ladder"), **told)
    assert message in str(refused.value)


def test_a_fallback_that_contradicts_itself_cannot_be_built():
    with pytest.raises(AssertionError, match="one of the first total"):
        Fallback(totals=(9, 9), to_serve=True, batch=(8,), rows=8, held=None)
    with pytest.raises(AssertionError, match="runs in a graph"):
        Fallback(totals=(8, 9), to_serve=True, batch=(8,), rows=8, held=8)


@pytest.mark.parametrize("module", [analysis, needs, shape], ids=lambda one: one.__name__)
def test_the_examples_in_the_docstrings_are_true(module):
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


TEXT = """\
cp 4, zigzag, requests up to 64 tokens, padding up to 2x
captured: 3 buckets, 80 rows
not captured, no split of it can be sharded: 4

totals      serve  why                           smallest batch  needs rows  held
27 to 32    yes    too few rows                  9,9,9           16          8
33 to 127   yes    no bucket within 2x           33              16
197 to 256  no     too few rows                  20 x 9, 17      72          64
257 on      no     no bucket has as many tokens  any

totals to serve, 8 to 128: 101 can fall back
add 3 buckets, 168 rows in all (88 more than given): 38, 78, 158
the smallest ladder for them has 5 buckets, 104 rows in all (24 more than given): 8, 18, 38, 78,
    158
"""

OTHERS = """\
cp 2, zigzag, requests up to 131072 tokens, at most 4 of them, padding up to 1.1x
captured: 3 buckets, 28 rows

totals    serve  why                           smallest batch  needs rows  held
4 to 10   yes    no bucket within 1.1x         4               4
13 to 14  yes    no bucket within 1.1x         13              8
15 to 16  yes    too few rows                  5,5,5           12          8
17 to 18  yes    no bucket within 1.1x         17              12
21 on     no     no bucket has as many tokens  any

totals to serve, 4 to 18: 13 can fall back
whatever is captured, as no bucket within the padding has the rows: 15
add 10 buckets, 96 rows in all (68 more than given): 4, 5, 6, 7, 8, 9, 10, 14, 17, 18
the smallest ladder for the others has 11 buckets, 76 rows in all (48 more than given): 4, 5, 6, 7,
    8, 9, 10, 12, 14, 17, 18
"""


def run(capsys, words):
    with pytest.raises(SystemExit) as end:
        main(["ladder", *words.split()])
    return end.value.code, *capsys.readouterr()


GAPS = "--cp-size 4 --context-length 64 --capture 4,16,32,256"


def test_the_text_of_a_ladder_that_lets_batches_fall_back(capsys):
    assert run(capsys, GAPS) == (1, TEXT, "")


def test_the_text_of_totals_that_no_bucket_serves(capsys):
    code, text, _ = run(capsys, "--cp-size 2 --capture 12,16,20 --max-padding-factor 1.1 --max-requests 4")
    assert (code, text) == (1, OTHERS)


def test_the_text_of_a_ladder_that_serves_all(capsys):
    code, text, _ = run(capsys, "--cp-size 4 --capture 8,18,38,78,158 --max-tokens 128 --context-length 64")
    assert code == 0
    assert "totals to serve, 8 to 128: none can fall back\nthe smallest ladder for them has 5 buckets" in text


@pytest.mark.parametrize("words", [GAPS, "--cp-size 4 --capture 16,512 --max-padding-factor 1.1 --strategy interleave"])
def test_programs_read_what_the_schema_describes(capsys, words):
    code, out, _ = run(capsys, f"{words} --json -")
    told = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert told["exit_code"] == code == 1
    found = told["fallbacks"][0]
    batch = CaptureTable(
        ladder=tuple(one["bucket"] for one in told["given"]["captured"]),
        max_padding_factor=told["max_padding_factor"],
        **{name: told[name] for name in ("cp_size", "context_length", "strategy")},
    )
    assert sum(found["batch"]) == found["first"]
    assert not runs(found["batch"], batch)


def test_the_schema_refuses_a_fallback_without_a_batch(capsys):
    told = json.loads(run(capsys, f"{GAPS} --json -")[1])
    told["fallbacks"][0]["batch"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(told)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--cp-size 4", "Missing option '--capture'"),
        ("--cp-size 4 --capture 16,x", "'x' is not an integer"),
        ("--cp-size 4 --capture 32,16", "buckets ascend and none comes twice"),
        ("--cp-size 1 --capture 16", "cp_size is 1"),
        ("--cp-size 4 --capture 16 --max-requests 0", "0 is not in the range x>=1"),
        ("--cp-size 4 --capture 16 --max-padding-factor nan", "max_padding_factor is nan"),
        ("--cp-size 4 --capture 16 --json /no/such/folder/file", "cannot write"),
    ],
)
def test_bad_usage_ends_with_2_and_a_sentence(capsys, words, message):
    code, out, err = run(capsys, words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
