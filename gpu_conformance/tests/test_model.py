"""The sharded model computes what every sequence alone gives; a wrong one is seen to differ."""

import pytest
import torch

from cpbcg_ref.errors import InvalidInput
from gpu_conformance.arithmetic import EXACT, SMOOTH
from gpu_conformance.buffers import Buffers, Cache, Fill
from gpu_conformance.graphs import eager
from gpu_conformance.lockstep import lockstep
from gpu_conformance.model import Model, Shape, forward
from gpu_conformance.plan import Request, plan
from gpu_conformance.whole import whole


def requests(*sizes):
    """(prefix, new tokens) per request, on slots of their own from 1 on."""
    slot, made = 1, []
    for prefix, new in sizes:
        tokens = tuple((7 * slot + 3 * i) % 97 for i in range(prefix + new))
        made.append(Request(tokens=tokens, prefix=prefix, slots=tuple(range(slot, slot + prefix + new))))
        slot += prefix + new
    return made


def sharded(model, batch, cp_size, rows):
    """Logits that rank 0 computes, and every rank's cache."""
    caches = [Cache.of(model.shape.layers, 400, model.shape.kv, dtype=model.dtype) for _ in range(cp_size)]
    for request in batch.sequences:
        for cache in caches:
            cache.rows[:, list(request.slots[: request.prefix])] = whole(model, request.tokens).kv[:, : request.prefix]
    rooms = [Buffers(rows=rows, cp_size=cp_size) for _ in range(cp_size)]
    inputs = [room.load(batch, rank, Fill()) for rank, room in enumerate(rooms)]
    done = lockstep([forward(model, one, cache, eager) for one, cache in zip(inputs, caches, strict=True)])
    return done[0][1], [cache.rows for cache in caches]


@pytest.mark.parametrize("cp_size", [2, 4, 8])
def test_exact_arithmetic_agrees_to_the_last_bit(cp_size):
    model, batch = Model(arithmetic=EXACT), plan(requests((3, 19), (0, 33), (64, 17)), cp_size)
    logits, _ = sharded(model, batch, cp_size, rows=48)
    expected = torch.stack([whole(model, request.tokens).logits for request in batch.sequences])
    assert torch.equal(logits, expected)


def test_smooth_arithmetic_agrees_within_rounding():
    model, batch = Model(arithmetic=SMOOTH), plan(requests((3, 19), (0, 33)), 4)
    logits, _ = sharded(model, batch, 4, rows=24)
    expected = torch.stack([whole(model, request.tokens).logits for request in batch.sequences])
    assert 0 < (logits - expected).abs().max() < 1e-11


def test_grouped_queries_of_several_requests_with_prefixes_on_four_ranks():
    """Two query heads share a key head; every request has another prefix, as after chunked prefill."""
    model = Model(arithmetic=EXACT)
    batch = plan(requests((1, 8), (64, 9), (7, 40), (0, 11), (100, 8)), 4)
    assert model.shape.heads == 2 * model.shape.kv_heads
    logits, caches = sharded(model, batch, 4, rows=32)
    for number, request in enumerate(batch.sequences):
        alone = whole(model, request.tokens)
        assert torch.equal(logits[number], alone.logits)
        assert all(torch.equal(cache[:, list(request.slots)], alone.kv) for cache in caches)


def test_exact_numbers_stay_exact_in_single_precision():
    tokens = tuple(i % 97 for i in range(200))
    double = whole(Model(arithmetic=EXACT), tokens)
    single = whole(Model(arithmetic=EXACT, dtype=torch.float32), tokens)
    assert torch.equal(double.hidden, single.hidden.double())


@pytest.mark.parametrize("arithmetic", [SMOOTH, EXACT], ids=lambda one: one.name)
def test_the_model_depends_on_order_position_and_every_key(arithmetic):
    model, tokens = Model(arithmetic=arithmetic), tuple(range(1, 20))
    right = whole(model, tokens).logits
    assert not torch.equal(right, whole(model, tokens[::-1]).logits)
    assert not torch.equal(right, whole(model, (50, *tokens[1:])).logits)
    assert not torch.equal(right, whole(model, (0, *tokens)).logits)


@pytest.mark.parametrize("rows", [0, 1, 20, 50])
def test_rows_attend_alike_however_many_do_at_a_time(rows, monkeypatch):
    model, positions = Model(arithmetic=EXACT), torch.arange(10, 10 + rows)
    queries, cached = torch.ones(rows, 64).double().cumsum(0), torch.arange(64 * 60.0).view(60, 64).double() % 11
    at_once = model.attend_at_once(queries, positions, cached)
    monkeypatch.setattr("gpu_conformance.model.BLOCK", 20)
    assert torch.equal(model.attend(queries, positions, cached), at_once)


def test_weights_are_drawn_before_any_capture():
    assert Model(arithmetic=SMOOTH).__dict__["weights"]


def test_single_precision_is_refused_where_it_is_not_exact():
    with pytest.raises(InvalidInput, match="exact up to sequences of 7281 tokens, not 8000"):
        Model(arithmetic=EXACT, dtype=torch.float32, shape=Shape(positions=8000))
    assert Model(arithmetic=EXACT, shape=Shape(positions=8000))


def test_a_type_whose_rounding_hides_mistakes_is_refused():
    with pytest.raises(AssertionError, match="larger than real mistakes"):
        Model(arithmetic=SMOOTH, dtype=torch.bfloat16)


def test_single_precision_agrees_within_its_rounding():
    model, batch = Model(arithmetic=SMOOTH, dtype=torch.float32), plan(requests((3, 19), (0, 33)), 4)
    logits, _ = sharded(model, batch, 4, rows=24)
    expected = torch.stack([whole(model, request.tokens).logits for request in batch.sequences])
    assert 0 < (logits - expected).abs().max() < 2e-5
