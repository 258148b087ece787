"""A shrunk case has no request, token, batch or bucket that its violation does without."""

from dataclasses import replace

import pytest

from cpbcg_ref.cases import (
    BadLayoutCase,
    Batch,
    CaptureCase,
    DelayerConfig,
    LastPassCase,
    LayoutCase,
    PassesCase,
    RankReport,
    ReplayCase,
    SelectCase,
    Server,
)
from cpbcg_ref.checking.size import size
from cpbcg_ref.checking.smaller import lower, smaller, without
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.oracles.tokens import shardable

BOTH = Reference.contract
ZIGZAG = Contract()
FIVES = Batch(lengths=(5,) * 6, prefixes=(0, 64, 0, 0, 0, 0))
SERVER = Server(cp_size=2, capture_num_tokens=(15, 31), context_length=64)
CASES = [
    LayoutCase(cp_size=2, batch=FIVES),
    BadLayoutCase(cp_size=2, lengths=(9, 1, 8)),
    ReplayCase(server=SERVER, batches=(FIVES, Batch(lengths=(15,), prefixes=(0,)))),
    CaptureCase(server=SERVER),
    SelectCase(num_tokens=3, required_local_tokens=2, capture_num_tokens=(3, 4), bucket_local_tokens=((4, 2),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_a_smaller_case_has_fewer_tokens_or_buckets(case):
    def measure(one):
        return size(one), len(one.server.capture_num_tokens) if isinstance(one, ReplayCase) else 0

    made = list(smaller(case, BOTH))
    assert made
    assert all(measure(one) < measure(case) for one in made)


def test_a_smaller_layout_is_one_that_the_engine_shards():
    for one in smaller(CASES[0], ZIGZAG):
        assert one.strategy == "zigzag"
        assert shardable(one.batch.lengths, 2, "zigzag")


def test_a_smaller_bad_layout_still_cannot_be_sharded():
    assert [one.lengths for one in smaller(CASES[1], ZIGZAG)] == [(1, 8), (9, 1)]


def test_a_smaller_bad_layout_keeps_the_factor_that_it_is_padded_to():
    case = BadLayoutCase(cp_size=2, lengths=(8, 4), padding_factor=6)
    assert list(smaller(case, ZIGZAG)) == [replace(case, lengths=(4,)), replace(case, lengths=(8,))]


def test_a_bucket_shrinks_with_its_batch():
    case = ReplayCase(server=SERVER, batches=(Batch(lengths=(15,), prefixes=(0,)),))
    made = [(one.batches[0].lengths, one.server.capture_num_tokens) for one in smaller(case, ZIGZAG)]
    assert ((7,), (7, 23)) in made
    assert ((7,), (15, 31)) in made
    assert ((7,), (7,)) in made


def test_all_batches_shrink_with_the_ladder():
    batches = tuple(Batch(lengths=(tokens,), prefixes=(0,)) for tokens in (14, 15))
    made = smaller(ReplayCase(server=SERVER, batches=batches), ZIGZAG)
    assert ((6,), (7,), (7, 23)) in [(*(b.lengths for b in one.batches), one.server.capture_num_tokens) for one in made]


def test_neighbours_are_left_out_half_of_them_first():
    assert list(without((1, 2, 3, 4))) == [(3, 4), (1, 4), (1, 2), (2, 3, 4), (1, 3, 4), (1, 2, 4), (1, 2, 3)]
    assert list(without((1,))) == []


def test_a_number_keeps_its_remainder_where_it_can():
    assert lower(13, 4) == [5, 9, 6, 12]
    assert lower(0, 4) == []


def test_fewer_ranks_are_tried_with_as_many_requests_and_remainders():
    batch = Batch(lengths=(17, 16, 18), prefixes=(0, 0, 0))
    made = list(smaller(LayoutCase(cp_size=8, batch=batch), ZIGZAG))
    assert LayoutCase(cp_size=2, batch=Batch(lengths=(5, 4, 5), prefixes=(0, 0, 0))) in made
    server = Server(cp_size=8, capture_num_tokens=(60,), context_length=64)
    offered = [
        (one.server.cp_size, *one.server.capture_num_tokens)
        for one in smaller(ReplayCase(server=server, batches=(batch,)), ZIGZAG)
    ]
    assert (2, 23) in offered


def test_a_bucket_of_twice_the_tokens_stays_one():
    server = Server(cp_size=2, capture_num_tokens=(14,), context_length=64)
    case = ReplayCase(server=server, batches=(Batch(lengths=(7,), prefixes=(0,)),))
    made = [(one.batches[0].lengths, one.server.capture_num_tokens) for one in smaller(case, ZIGZAG)]
    assert ((6,), (12,)) in made


def test_a_negotiation_is_tried_without_each_of_its_ranks():
    config = DelayerConfig(dp_size=3, max_delay_passes=1, max_running_requests=1)
    one_pass = tuple(RankReport(prefillable=True, running_batch=rank) for rank in range(3))
    case = PassesCase(config=config, passes=(one_pass, one_pass))
    left = [[report.running_batch for report in made.passes[1]] for made in smaller(case, Contract())]
    assert left == [[1, 2], [0, 2], [0, 1]]
    assert {made.config.dp_size for made in smaller(case, Contract())} == {2}


def test_a_pair_of_last_passes_loses_a_rank_everywhere():
    config = DelayerConfig(dp_size=2, max_delay_passes=1, max_running_requests=1)
    one_pass = tuple(RankReport(prefillable=True, running_batch=rank) for rank in range(2))
    case = LastPassCase(config=config, history=(one_pass,), last=one_pass, other_last=one_pass)
    made = next(iter(smaller(case, Contract())))
    assert (made.history, made.last, made.other_last) == ((one_pass[1:],), one_pass[1:], one_pass[1:])


def test_a_replica_has_no_rank_to_lose():
    config = DelayerConfig(dp_size=3, max_delay_passes=1, max_running_requests=1, enable_dp_attention=False)
    case = PassesCase(config=config, passes=((RankReport(prefillable=True),),))
    assert list(smaller(case, Contract())) == []
