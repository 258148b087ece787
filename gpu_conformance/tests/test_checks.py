"""The checks on literal numbers, and that each is done for every batch on every rank."""

import pytest
import torch

from gpu_conformance import checks
from gpu_conformance.arithmetic import EXACT
from gpu_conformance.buffers import GUARD_ROWS, Buffers, Cache, Fill
from gpu_conformance.checks import places
from gpu_conformance.model import Model
from gpu_conformance.plan import Request, plan
from gpu_conformance.rank import Output, Rank
from gpu_conformance.trials import group, served
from gpu_conformance.work import EAGER, Seen

BATCH = plan([Request(tokens=tuple(range(8)), prefix=0, slots=tuple(range(1, 9)))], 2)  # 4 rows on each of 2 ranks


def output(*, rows=4, requests=1, slots=12):
    return Output(hidden=torch.zeros(rows, 3), logits=torch.zeros(requests, 5), cache=torch.zeros(2, slots, 4))


def sentences(found):
    return [finding.sentence for finding in found]


def test_numbers_differ_beyond_what_their_type_rounds_to():
    for dtype, bound in checks.TOLERANCE.items():
        zero, off = torch.zeros(2, 1, dtype=dtype), torch.tensor([[0.0], [1.0]], dtype=dtype)
        assert places(zero, off * bound * 0.9, exactly=False) == []
        assert places(zero, off * bound * 1.1, exactly=False) == [1]
        assert places(zero, off * bound * 0.9, exactly=True) == [1]


def test_nan_differs_from_everything():
    nan = torch.tensor([[0.0], [torch.nan]])
    assert places(nan, nan, exactly=False) == [1]


def test_one_row_is_not_spread_over_many():
    with pytest.raises(AssertionError, match=r"\(1, 3\) beside \(4, 3\)"):
        places(torch.zeros(1, 3), torch.zeros(4, 3), exactly=False)


@pytest.mark.parametrize(("captured", "found"), [(3, 1), (4, 0), (0, 1)])
def test_live_rows_need_as_many_captured_ones(captured, found):
    assert len(list(checks.rows_fit(BATCH, 1, bucket=8, captured=captured))) == found


@pytest.mark.parametrize(("lost", "told"), [({"rows": 3}, "3 rows came out, 4 are live"), ({"requests": 0}, "0 req")])
def test_rows_and_requests_that_did_not_come_out_are_counted(lost, told):
    (sentence,) = sentences(checks.rows_came_out(BATCH, 0, output(**lost)))
    assert told in sentence
    assert not list(checks.rows_came_out(BATCH, 0, output(rows=6)))


@pytest.mark.parametrize("lost", [{"rows": 3}, {"requests": 2}])
def test_runs_that_give_different_numbers_of_rows_differ(lost):
    (sentence,) = sentences(checks.history_free(BATCH, 0, output(), output(**lost)))
    assert "came out after other batches" in sentence


@pytest.mark.parametrize(
    ("of", "place", "told"),
    [
        ("hidden", (2, 1), "row 2 differs"),
        ("logits", (0, 4), "request 0 differs"),
        ("cache", (1, 7, 0), "slot 7 differs"),
    ],
)
def test_a_number_that_differs_is_told_with_its_place(of, place, told):
    other = output()
    getattr(other, of)[place] = 1e-30
    (sentence,) = sentences(checks.padding_inert(BATCH, 0, output(), other))
    assert told in sentence


def test_padding_rows_and_the_scratch_slot_may_differ():
    other = output(rows=6)
    other.hidden[4:], other.cache[:, 0] = 1.0, 1.0
    assert not list(checks.padding_inert(BATCH, 0, output(rows=6), other))


def test_a_slot_that_no_token_owns_must_not_change():
    out = output()
    out.cache[1, (0, 3, 8)] = 1.0
    assert not list(checks.planned_slots_only(BATCH, 0, torch.zeros(2, 12, 4), out))
    out.cache[1, 9] = 1.0
    assert "slot 9 changed" in sentences(checks.planned_slots_only(BATCH, 0, torch.zeros(2, 12, 4), out))[0]


# guards --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", [-1, -GUARD_ROWS, -(2**62), 6, 6 + GUARD_ROWS - 1, 2**62])
def test_a_write_outside_the_cache_hits_a_guard(slot):
    cache = Cache.of(2, 6, 3)
    cache.write(1, torch.tensor([0, slot]), torch.ones(2, 3))
    assert not cache.intact()
    cache.mend()
    assert cache.intact()
    assert cache.rows.sum() == 3


def test_the_first_and_the_last_slot_are_inside():
    cache = Cache.of(2, 6, 3)
    cache.write(0, torch.tensor([0, 5]), torch.ones(2, 3))
    assert cache.intact()
    assert cache.read(0, torch.tensor([5, 1])).tolist() == [[1.0] * 3, [0.0] * 3]


def test_every_guard_of_the_buffers_is_looked_at():
    room = Buffers(rows=3, cp_size=2)
    for place in (0, GUARD_ROWS + 3, 2 * GUARD_ROWS + 6, 3 * GUARD_ROWS + 12, len(room.memory) - 1):
        assert room.intact()
        room.memory[place] = 7
        assert not room.intact()
        room.mend()


def test_loading_a_batch_touches_no_guard_and_wiping_neither():
    room = Buffers(rows=3, cp_size=2)  # fewer than the batch needs
    room.load(BATCH, 0, Fill(token=1, position=2))
    room.wipe()
    assert room.intact()


def test_what_is_overwritten_is_named_once():
    rank = Rank(cp_rank=0, cp_size=2, truth=Model(arithmetic=EXACT), slots=20)
    rank.buffers[64] = rank.room(4)
    rank.buffers[64].memory[0] = 0
    rank.cache.memory[0, -1] = 0.0
    rank.pool.arena.bytes[0] = 0
    assert rank.overwritten() == ["the KV cache", "the memory of the graphs", "the inputs of bucket 64"]
    assert rank.overwritten() == []


def test_requests_to_capture_with_must_fit_the_rows_too():
    rank = Rank(cp_rank=0, cp_size=2, truth=Model(arithmetic=EXACT), slots=20)
    (found,) = checks.captures_fit(rank, {8: (8,), 6: (6,)}, {8: 4, 6: 2})
    assert (found.invariant, found.sentence[:37]) == ("capacity.no-overflow", "rank 0 owns 3 rows, bucket 6 captured")


# every batch, every rank ---------------------------------------------------------------------------------------------


def test_every_batch_is_judged_by_every_check_on_every_rank():
    made = group("", 0, cp_size=4)
    seen = [Seen(cp_rank=rank) for rank in range(4)]
    assert served(made, seen) == ""
    batches = len(made.offers)
    replayed = sum(bucket != EAGER for _, bucket in seen[0].chosen)
    assert 0 < replayed < batches
    for rank in seen:
        always = ("agree.bucket", "agree.mode", "agree.collectives", "data.replay-equals-eager", "data.padding-inert")
        assert {name: rank.judged[name] for name in always} == dict.fromkeys(always, batches)
        on_graphs = ("capacity.no-overflow", "data.history-free", "data.in-bounds")
        assert {name: rank.judged[name] for name in on_graphs} == dict.fromkeys(on_graphs, replayed)
