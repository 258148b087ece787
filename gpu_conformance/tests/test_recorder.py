"""The recorder behaves like a CUDA graph: fixed addresses, Python does not run again, dead blocks are reused."""

import gc

import pytest
import torch

from gpu_conformance.graphs import CpuPool, Graph
from gpu_conformance.recorder import MAGIC, Arena


@pytest.fixture
def graph():
    return Graph(pool=CpuPool())


def test_a_replay_computes_what_the_captured_function_would(graph):
    graph.capture("s", lambda x: (x * 2).relu() + 1, torch.tensor([1.0, -2.0]))
    assert graph.replay("s", None, torch.tensor([-1.0, 3.0])).tolist() == [1.0, 7.0]


def test_outputs_stay_at_their_address(graph):
    first = graph.capture("s", lambda x: x + 1, torch.zeros(3))
    assert graph.replay("s", None, torch.ones(3)).data_ptr() == first.data_ptr()


def test_python_does_not_run_again(graph):
    ran = []
    graph.capture("s", lambda x: (ran.append(1), x + 1)[1], torch.zeros(3))
    graph.replay("s", None, torch.ones(3))
    assert ran == [1]


def test_a_fixed_input_is_read_where_it_stands():
    fixed = torch.zeros(3)
    graph = Graph(pool=CpuPool(), static=frozenset({fixed.data_ptr()}))
    graph.capture("s", lambda x: x + 1, fixed)
    fixed.fill_(4.0)
    assert graph.replay("s", None, fixed).tolist() == [5.0] * 3


def test_an_operation_in_place_is_replayed(graph):
    def doubled(x):
        y = x.clone()
        y.mul_(2)
        return y

    graph.capture("s", doubled, torch.ones(2))
    assert graph.replay("s", None, torch.full((2,), 5.0)).tolist() == [10.0, 10.0]


def test_a_view_of_an_output_is_replayed(graph):
    graph.capture("s", lambda x: (x + 1).view(2, 2).t(), torch.zeros(4))
    assert graph.replay("s", None, torch.arange(4.0)).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_an_input_of_another_shape_is_refused(graph):
    graph.capture("s", lambda x: x + 1, torch.zeros(3))
    with pytest.raises(AssertionError, match=r"\(1,\) into a captured \(3,\)"):
        graph.replay("s", None, torch.zeros(1))


def test_a_block_whose_tensor_died_is_given_away_again():
    arena = Arena(1 << 16)
    held, block = arena.like(torch.zeros(8))
    address = held.data_ptr()
    del held, block
    gc.collect()
    assert arena.like(torch.zeros(8))[0].data_ptr() == address


def test_a_block_that_is_held_is_not_given_away():
    arena = Arena(1 << 16)
    held, block = arena.like(torch.zeros(8))
    assert arena.like(torch.zeros(8))[0].data_ptr() != held.data_ptr()
    assert block


def test_a_view_keeps_its_block(graph):
    kept = graph.capture("s", lambda x: (x + 1)[1:], torch.zeros(8))
    later = graph.capture("t", lambda x: x + 5, torch.zeros(8))
    graph.replay("s", None, torch.zeros(8))
    graph.replay("t", None, torch.zeros(8))
    assert kept.tolist() == [1.0] * 7
    assert later.tolist() == [5.0] * 8


def test_a_write_beside_a_block_breaks_a_guard():
    arena = Arena(1 << 16)
    _, block = arena.like(torch.zeros(8, dtype=torch.float64))
    assert arena.guards_intact()
    arena.bytes[block.start + block.size] = MAGIC ^ 1
    assert not arena.guards_intact()


def test_an_arena_that_is_full_says_so():
    with pytest.raises(AssertionError, match="arena of 1024 bytes is full"):
        Arena(1024).like(torch.zeros(1000))
