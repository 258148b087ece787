"""Each layout checker on answers worked out by hand, and on an engine that gets that one thing wrong."""

from dataclasses import replace

import pytest
from toys import Toy, judged

from cpbcg_ref.answers import BadLayoutSeen, LayoutSeen, Raised
from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY

PAD = None
PLAIN = Contract(strategies=("zigzag", "interleave"))

# Two ranks. Request 0 in blocks 01 2 3 4; request 1, 3 tokens cached, in blocks 5 6 7 8 at positions 3 4 5 6.
ZIGZAG = LayoutCase(cp_size=2, batch=Batch(lengths=(5, 4), prefixes=(0, 3)), spare_rows=1)
RIGHT = LayoutSeen(
    active=(True, True),
    required=(8, 8),
    logical=(5, 4),
    rows=((0, 1, 5, 4, 8, PAD, PAD, PAD), (2, 6, 3, 7, PAD, PAD, PAD, PAD)),
    positions=((0, 1, 3, 4, 6, 0, 0, 0), (2, 4, 3, 5, 0, 0, 0, 0)),
    lengths=((0, 5, 9, 9), (0, 5, 9, 9)),
    segments=(((2, 2), (1, 4), (1, 5), (1, 7)), ((1, 3), (1, 5), (1, 4), (1, 6))),
    restored=((0, 1, 2, 3, 4, 5, 6, 7, 8),) * 2,
    spare_rows=((0, 1, 5, 4, 8, *(PAD,) * 4), (2, 6, 3, 7, *(PAD,) * 5)),
    spare_restored=((0, 1, 2, 3, 4, 5, 6, 7, 8),) * 2,
)
# Another partition that is right: round robin, one row at a time.
ROBIN = LayoutCase(cp_size=2, batch=Batch(lengths=(2, 1), prefixes=(1, 0)), strategy="interleave")
ROBIN_RIGHT = LayoutSeen(
    active=(True, True),
    required=(2, 2),
    logical=(2, 1),
    rows=((0, 2), (1, PAD)),
    positions=((1, 0), (2, 0)),
    lengths=((0, 1, 2, 2), (0, 1, 1, 1)),
    segments=(((1, 2), (1, 1)), ((1, 3),)),
    restored=((0, 1, 2), (0, 1, 2)),
    spare_rows=((0, 2), (1, PAD)),
    spare_restored=((0, 1, 2), (0, 1, 2)),
)
GATHERING = Raised("RuntimeError", "split sizes sum to 9, input has 8 rows", "zigzag.py:7")
OF_ACTIVE_BATCHES = [id for id, one in REGISTRY.items() if one.parts[0].family == "layout"]


def verdict(id, case, seen, contract=PLAIN):
    """Of the first part that is violated."""
    return next(filter(None, (part.check(case, seen, contract) for part in REGISTRY[id].parts)), None)


@pytest.mark.parametrize("id", OF_ACTIVE_BATCHES)
@pytest.mark.parametrize(("case", "seen"), [(ZIGZAG, RIGHT), (ROBIN, ROBIN_RIGHT)])
def test_a_right_layout_is_accepted_whatever_its_strategy(id, case, seen):
    assert verdict(id, case, seen) is None


LOST = ((0, 1, 5, 4, PAD, PAD, PAD, PAD), RIGHT.rows[1])
TWICE = (RIGHT.rows[0], (2, 6, 3, 8, PAD, PAD, PAD, PAD))
MIXED = (((2, 2), (2, 5), (1, 7)), RIGHT.segments[1])
WRONG = [
    ("layout.bijection", {"rows": LOST}, "1 of 9 tokens have no owner, first token 8"),
    ("layout.bijection", {"rows": TWICE}, "token 8 is owned twice: rank 0 row 4, rank 1 row 3"),
    ("layout.bijection", {"rows": ((9,), (0,))}, "rank 0 row 0 holds no token of the batch"),
    ("layout.conserves", {"logical": (5, 5)}, "rows per rank [5, 5] sum to 10, the batch has 9 tokens"),
    (
        "layout.conserves",
        {"logical": (4, 5)},
        "rank 0 counts 4 rows, its shard holds 5 tokens",
    ),
    (
        "layout.conserves",
        {"segments": (((2, 2), (1, 4), (1, 5)), RIGHT.segments[1])},
        "rank 0: blocks sum to 4 rows, its shard holds 5 tokens",
    ),
    (
        "layout.conserves",
        {"rows": (RIGHT.rows[0], (2, 6, 3, 4, PAD, PAD, PAD, PAD))},
        "blocks of request 0 sum to 6, its length is 5",
    ),
    ("layout.roundtrip", {"restored": ((0, 1, 2, 3, 4, 5, 6, 8, 7),) * 2}, "rank 0 gathers 8 at 7"),
    ("layout.roundtrip", {"restored": ((0, 1, 2), (0, 1, 2))}, "rank 0 gathers 3 rows of 9 tokens"),
    (
        "layout.roundtrip",
        {"spare_restored": (RIGHT.restored[0], (PAD, *range(1, 9)))},
        "rank 1 gathers with 1 spare rows padding at 0",
    ),
    (
        "layout.companions",
        {"positions": (RIGHT.positions[0], (2, 1, 3, 2, 0, 0, 0, 0))},
        "rank 1 row 1: position 1 beside token 6 of 4",
    ),
    (
        "layout.companions",
        {"positions": (RIGHT.positions[0], (2, 4, 3, 5))},
        "rank 1 has 8 rows of hidden states and 4 of positions",
    ),
    (
        "layout.companions",
        {"lengths": ((0, 9), (5, 9))},
        "rank 0 gets cumulative lengths [0, 9], not [0, 5, 9] or its own [0, 3, 5]",
    ),
    (
        "layout.companions",
        {"lengths": ((0, 3, 5), (0, 3, 5, 5))},
        "rank 1 gets cumulative lengths [0, 3, 5, 5], not [0, 5, 9] or its own [0, 2, 4]",
    ),
    (
        "layout.companions",
        {"lengths": ((0, 5, 9), ())},
        "rank 1 gets cumulative lengths [], not [0, 5, 9] or its own [0, 2, 4]",
    ),
    (
        "layout.causal",
        {"segments": (((2, 2), (1, 1), (1, 5), (1, 7)), RIGHT.segments[1])},
        "rank 0 row 2 (request 1, position 3) sees 1 keys, not 4",
    ),
    ("layout.causal", {"segments": MIXED}, "rank 0 row 3 is of request 0 but sees keys of request 1"),
    (
        "layout.causal",
        {"segments": (RIGHT.segments[0], ((1, 3), (1, 5), (1, 4)))},
        "rank 1 row 3 holds token 7 but attends to nothing",
    ),
    (
        "layout.causal",
        {"segments": ((*RIGHT.segments[0], (1, 9)), RIGHT.segments[1])},
        "rank 0 row 5 is padding but sees 9 keys",
    ),
    (
        "layout.causal",
        {"rows": ((0, 9, 5, 4, 8, PAD, PAD, PAD), RIGHT.rows[1])},
        "rank 0 row 1 holds no token of the batch",
    ),
    (
        "layout.causal",
        {"rows": ((PAD, 1, 5, 4, 8, PAD, PAD, PAD), RIGHT.rows[1])},
        "rank 0 row 0 is padding but sees 1 keys",
    ),
    (
        "layout.causal",
        {"segments": (((2, 2), (1, 4), (1, 5), (2, 8)), RIGHT.segments[1])},
        "rank 0 row 5 is padding but sees 8 keys",
    ),
    (
        "layout.causal",
        {"segments": (RIGHT.segments[0], (*RIGHT.segments[1], (5, 9)))},
        "rank 1 attends with 9 rows, its shard has 8",
    ),
    ("layout.nonempty", {"rows": (tuple(range(9)), (PAD,) * 9)}, "CP is active, rank 1 owns no row"),
    (
        "layout.balance",
        {"rows": (tuple(range(6)), (6, 7, 8))},
        "request 0: rows per rank [5, 0] differ by more than 1",
    ),
    ("capacity.required", {"required": (8, 12)}, "rank 1 requires 12 rows, the largest rank owns 5: 8 padded"),
    ("capacity.required", {"required": (8, None)}, "rank 1 requires None rows, the largest rank owns 5: 8 padded"),
]


@pytest.mark.parametrize(("id", "change", "sentence"), WRONG)
def test_one_wrong_answer_is_told_with_its_numbers(id, change, sentence):
    assert verdict(id, ZIGZAG, replace(RIGHT, **change)) == f"{sentence} (lengths 5,4, cp 2)"


NEEDS = {
    "layout.bijection": ("rows",),
    "layout.conserves": ("rows", "logical", "segments"),
    "layout.roundtrip": ("rows", "restored", "spare_rows", "spare_restored"),
    "layout.companions": ("rows", "positions"),
    "layout.causal": ("rows", "segments"),
    "layout.nonempty": ("rows", "active"),
    "layout.balance": ("rows",),
    "capacity.required": ("rows", "required"),
}


def test_an_engine_that_refuses_lengths_in_a_batch_slices_none():
    assert verdict("layout.companions", ZIGZAG, replace(RIGHT, lengths=GATHERING)) is None


@pytest.mark.parametrize(("id", "answer"), [(id, answer) for id in OF_ACTIVE_BATCHES for answer in NEEDS[id]])
def test_an_exception_where_an_answer_is_due_is_a_violation(id, answer):
    sentence = verdict(id, ZIGZAG, replace(RIGHT, **{answer: GATHERING}))
    assert sentence.endswith("raised RuntimeError: split sizes sum to 9, input has 8 rows")


def test_an_exception_on_one_rank_names_the_rank():
    sentence = verdict("capacity.required", ZIGZAG, replace(RIGHT, required=(8, GATHERING)))
    assert sentence == "required rows: rank 1 raised RuntimeError: split sizes sum to 9, input has 8 rows"


def test_contiguous_halves_are_out_of_balance():
    case = LayoutCase(cp_size=2, batch=Batch(lengths=(8,), prefixes=(0,)))
    seen = replace(RIGHT, rows=((0, 1, 2, 3), (4, 5, 6, 7)))
    assert verdict("layout.balance", case, seen) == (
        "request 0: work per rank [10, 26] differ by more than 0 (lengths 8, cp 2)"
    )


def test_a_gather_that_answers_for_one_rank_of_two_is_noticed():
    one = replace(RIGHT, restored=RIGHT.restored[:1])
    assert verdict("layout.roundtrip", ZIGZAG, one).startswith("gathering answers for 1 of 2 ranks")
    assert verdict("layout.roundtrip", ZIGZAG, replace(RIGHT, restored=())).startswith("gathering answers for 0 of 2")


def test_balance_is_asked_only_of_engines_that_declare_balanced_zigzag_blocks():
    excluded = REGISTRY["layout.balance"].parts[0].excluded
    assert excluded(PLAIN) == ""
    for other in (replace(PLAIN, blocks="ceil"), replace(PLAIN, strategies=("interleave",))):
        assert excluded(other) == "the engine declares no balanced zigzag blocks"


def test_ceil_chunks_are_any_correct_partition():
    case = LayoutCase(cp_size=2, batch=Batch(lengths=(5,), prefixes=(0,)))
    chunks = replace(RIGHT, logical=(2, 3), rows=((0, 1, PAD), (2, 3, 4)), segments=(((2, 2),), ((2, 4), (1, 5))))
    declared = replace(PLAIN, blocks="ceil")
    ids = ("layout.bijection", "layout.conserves", "layout.causal", "layout.nonempty")
    assert [verdict(id, case, chunks, declared) for id in ids] == [None] * 4


@pytest.mark.parametrize(("contract", "holds"), [(PLAIN, True), (Toy.contract, False)])
def test_no_required_rows_are_right_only_where_there_are_no_graphs(contract, holds):
    sentence = verdict("capacity.required", ROBIN, replace(ROBIN_RIGHT, required=(None, None)), contract)
    assert (sentence is None) == holds


def test_what_only_some_engines_can_be_asked_is_a_part_of_its_own():
    needs = {id: [part.needs for part in REGISTRY[id].parts] for id in (*OF_ACTIVE_BATCHES, "layout.bad-input")}
    assert needs == {
        "layout.bijection": [()],
        "layout.conserves": [(), ("rows",), ("keys",)],
        "layout.roundtrip": [("gather",), ("gather", "captured-rows")],
        "layout.companions": [("positions",), ("lengths",)],
        "layout.causal": [("keys",)],
        "layout.nonempty": [("gate",)],
        "layout.balance": [()],
        "capacity.required": [("capacity",)],
        "layout.bad-input": [(), ("capacity",), ("gate",)],
    }


class ShardsOnly:
    """What every sharder has and nothing else: padding inside the requests, both blocks of a request side by side."""

    name, version, roots = "shards only", "1", (__file__,)
    contract = Contract(min_length=0, blocks="ceil", cached_prefixes=False)

    def shard(self, batch, payload, *, cp_size, strategy):
        ranks = [[] for _ in range(cp_size)]
        for length in batch.lengths:
            mine, payload = payload[:length], payload[length:]
            size = -(-length // (2 * cp_size))
            mine += [0] * (2 * cp_size * size - length)
            blocks = [mine[i * size : (i + 1) * size] for i in range(2 * cp_size)]
            for rank, rows in enumerate(ranks):
                rows += blocks[rank] + blocks[-1 - rank]
        return ranks


def test_an_engine_that_only_shards_is_judged_by_what_it_has_and_the_rest_says_why_not():
    checker = Checker(engine=ShardsOnly(), target="it", profile="dev")
    found = {id: checker.check(id) for id in (*OF_ACTIVE_BATCHES, "layout.bad-input")}
    assert {id: (one.outcome, one.message) for id, one in found.items()} == {
        "layout.bijection": ("pass", ""),
        "layout.conserves": ("pass", "asked in part only: the adapter has no logical_rows"),
        "layout.roundtrip": ("skip", "the adapter has no gather"),
        "layout.companions": ("skip", "the adapter has no shard_positions"),
        "layout.causal": ("skip", "the adapter has no kv_segments"),
        "layout.nonempty": ("skip", "the adapter has no is_cp_active"),
        "layout.balance": ("skip", "the engine declares no balanced zigzag blocks"),
        "capacity.required": ("skip", "the adapter has no required_local_tokens"),
        "layout.bad-input": ("fail", "a negative length was sharded without an error (lengths -1, cp 2)"),
    }


REFUSED = Raised("ValueError", "too short", "zigzag.py:3")
INACTIVE = (False, False)


@pytest.mark.parametrize(
    ("lengths", "seen", "sentence"),
    [
        ((9, 3), BadLayoutSeen(active=INACTIVE, rows=REFUSED, required=()), None),
        ((2,), BadLayoutSeen(active=INACTIVE, rows=((0, PAD), (1, PAD)), required=()), None),
        ((), BadLayoutSeen(active=INACTIVE, rows=((), ()), required=()), None),
        (
            (2,),
            BadLayoutSeen(active=INACTIVE, rows=((0,), ()), required=()),
            "sharded without an error, but 1 of 2 tokens have no owner, first token 1 (lengths 2, cp 2)",
        ),
        (
            (-1, 9),
            BadLayoutSeen(active=INACTIVE, rows=((0, 1, 2, 3), (4, 5, 6, 7)), required=()),
            "a negative length was sharded without an error (lengths -1,9, cp 2)",
        ),
        (
            (9, 3),
            BadLayoutSeen(active=(False, True), rows=REFUSED, required=()),
            "rank 1 says CP is active for a batch that cannot be sharded (lengths 9,3, cp 2)",
        ),
    ],
)
def test_what_cannot_be_sharded_is_refused_or_kept_whole(lengths, seen, sentence):
    assert verdict("layout.bad-input", BadLayoutCase(cp_size=2, lengths=lengths), seen) == sentence


def test_padding_that_the_caller_chose_loses_no_token():
    case = BadLayoutCase(cp_size=3, lengths=(1, 7), padding_factor=4)
    kept = BadLayoutSeen(active=(False,) * 3, rows=((0, 1, 6), (2, 5), (3, 4, 7)), required=())
    assert verdict("layout.bad-input", case, kept) is None
    assert verdict("layout.bad-input", case, replace(kept, rows=REFUSED)) is None
    cut = replace(kept, rows=((1, 6), (2, 5), (3, 4)))
    told = "padded to multiples of 4 without an error, but 2 of 8 tokens have no owner, first token 0"
    assert verdict("layout.bad-input", case, cut) == told


@pytest.mark.parametrize(
    ("contract", "asked"),
    [
        ({}, True),
        ({"min_length": 1}, True),
        ({"divides": 2}, True),
        ({"padding_factor": True}, True),
        ({"negative_lengths": True}, True),
        ({"negative_lengths": False}, False),
    ],
)
def test_an_engine_that_shards_whatever_it_can_be_told_is_asked_for_no_refusal(contract, asked):
    contract = Contract(**{"min_length": 0, "negative_lengths": not contract} | contract)
    why_not = {part.excluded(contract) for part in REGISTRY["layout.bad-input"].parts}
    assert why_not == ({""} if asked else {"it shards every batch that it can be told of"})


@pytest.mark.parametrize(
    ("lengths", "required", "sentence"),
    [
        ((-4,), (REFUSED, REFUSED), None),
        ((3,), (4, 4), None),
        ((-4,), (0, 0), "leaf required_local_tokens answers 0 to a negative length (lengths -4, cp 2)"),
    ],
)
def test_required_rows_of_a_negative_length_are_refused(lengths, required, sentence):
    seen = BadLayoutSeen(active=INACTIVE, rows=REFUSED, required=required)
    assert verdict("layout.bad-input", BadLayoutCase(cp_size=2, lengths=lengths), seen) == sentence


class LosesTheLastToken(Toy):
    def shard(self, batch, payload, **how):
        return [
            [value if value != len(payload) else 0 for value in rows] for rows in super().shard(batch, payload, **how)
        ]


class CountsPaddedRows(Toy):
    def logical_rows(self, batch, *, cp_size, strategy):
        return [self.rows(batch.lengths, cp_size, strategy)] * cp_size


class GathersRankMajor(Toy):
    def gather(self, batch, rows, **how):
        return [[value for local in rows for value in local if value]] * how["cp_size"]


class AttendsNotToTheLastRow(Toy):
    def kv_segments(self, batch, **how):
        return [segments[:-1] for segments in super().kv_segments(batch, **how)]


class ForgetsCapturedRows(Toy):
    def shard(self, batch, payload, *, captured_rows=None, **how):
        return super().shard(batch, payload, **how)


class NumbersRowsLocally(Toy):
    def shard_positions(self, batch, positions, **how):
        return [list(range(len(rows))) for rows in super().shard_positions(batch, positions, **how)]


class SlicesLengthsAsTokens(Toy):
    def shard_lengths(self, batch, payload, cumulative, *, cp_size, strategy):
        size = len(cumulative) // (2 * cp_size)
        blocks = [cumulative[i * size : (i + 1) * size] for i in range(2 * cp_size)]
        return [blocks[rank] + blocks[-1 - rank] for rank in range(cp_size)]


class PermutesQueriesNotLengths(Toy):
    def kv_segments(self, batch, **how):
        return [sorted(segments) for segments in super().kv_segments(batch, **how)]


class ActiveOnPromptLength(Toy):
    def is_cp_active(self, batch, *, cp_size, **how):
        return sum(batch.lengths) + sum(batch.prefixes) >= 2 * cp_size

    def check(self, *_):
        pass


class SplitsContiguously(Toy):
    def owners(self, lengths, cp_size, strategy):
        share = -(-sum(lengths) // cp_size)
        return [list(range(sum(lengths)))[rank * share :][:share] for rank in range(cp_size)]


class DropsShortRequests(Toy):
    def check(self, *_):
        pass

    def block(self, length, block, cp_size):
        return super().block(length, block, cp_size) if length >= 2 * cp_size else 0


class RoundsOneRequest(Toy):
    def required_local_tokens(self, lengths, **how):
        return super().required_local_tokens([sum(lengths)], **how)


class CountsAnything(Toy):
    def required_local_tokens(self, lengths, *, cp_size, strategy, cp_rank):
        return sum(lengths) // cp_size


def batch(*lengths, prefix=0):
    return Batch(lengths=lengths, prefixes=(prefix, *(0 for _ in lengths[1:])))


class PadsAsAsked(Toy):
    """Each length to a multiple of the factor and then of twice the ranks."""

    def shard(self, batch, payload, *, cp_size, strategy, padding_factor=1):
        ranks, values = [[] for _ in range(cp_size)], iter(payload)
        for length in batch.lengths:
            mine = [next(values) for _ in range(length)]
            while len(mine) % padding_factor or self.odd(len(mine), cp_size):
                mine.append(0)
            size = len(mine) // (2 * cp_size)
            for rank, rows in enumerate(ranks):
                late = 2 * cp_size - 1 - rank
                rows += mine[rank * size : (rank + 1) * size] + mine[late * size : (late + 1) * size]
        return ranks

    def odd(self, length, cp_size):
        return length % (2 * cp_size)


class TrustsTheFactor(PadsAsAsked):
    def odd(self, length, cp_size):
        return False


def test_an_engine_that_trusts_the_callers_factor_is_rejected():
    case = BadLayoutCase(cp_size=3, lengths=(1,), padding_factor=2)
    assert judged(PadsAsAsked(), "layout.bad-input", case) is None
    assert judged(TrustsTheFactor(), "layout.bad-input", case) == (
        "padded to multiples of 2 without an error, but 1 of 1 tokens have no owner, first token 0"
    )


ACTIVE = LayoutCase(cp_size=2, batch=batch(5, 9), spare_rows=1)
SHORT = LayoutCase(cp_size=8, batch=batch(5, prefix=1000))
REJECTED = [
    ("layout.bijection", LosesTheLastToken, ACTIVE, 0),
    ("layout.conserves", CountsPaddedRows, ACTIVE, 1),
    ("layout.conserves", AttendsNotToTheLastRow, ACTIVE, 2),
    ("layout.roundtrip", GathersRankMajor, ACTIVE, 0),
    ("layout.roundtrip", ForgetsCapturedRows, ACTIVE, 1),
    ("layout.companions", NumbersRowsLocally, ACTIVE, 0),
    ("layout.companions", SlicesLengthsAsTokens, ACTIVE, 1),
    ("layout.companions", SlicesLengthsAsTokens, LayoutCase(cp_size=2, batch=batch(4)), 1),
    ("layout.causal", PermutesQueriesNotLengths, ACTIVE, 0),
    ("layout.nonempty", ActiveOnPromptLength, SHORT, 0),
    ("layout.balance", SplitsContiguously, ACTIVE, 0),
    ("layout.bad-input", DropsShortRequests, BadLayoutCase(cp_size=2, lengths=(9, 3)), 0),
    ("layout.bad-input", CountsAnything, BadLayoutCase(cp_size=2, lengths=(-4,)), 1),
    ("layout.bad-input", ActiveOnPromptLength, BadLayoutCase(cp_size=2, lengths=(9, 3)), 2),
    ("capacity.required", RoundsOneRequest, LayoutCase(cp_size=4, batch=batch(9, 9, 9)), 0),
]


@pytest.mark.parametrize(("id", "wrong", "case", "part"), REJECTED)
def test_an_engine_with_one_thing_wrong_is_rejected_and_the_correct_one_is_not(id, wrong, case, part):
    assert judged(wrong(), id, case, part)
    if case is not SHORT:  # no engine shards it
        assert judged(Toy(), id, case, part) is None


def test_a_long_batch_still_fits_on_a_line():
    case = replace(ZIGZAG, batch=Batch(lengths=(2049,) * 64, prefixes=(0,) * 64))
    counts = REGISTRY["layout.conserves"].parts[1]
    sentence = counts.check(case, replace(RIGHT, logical=(70000, 70000)), PLAIN)
    assert len(sentence) < 100
    assert sentence.startswith("rows per rank [70000, 70000] sum to 140000")
