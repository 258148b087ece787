"""The recorder behaves like a CUDA graph: fixed addresses, Python does not run again, dead blocks are reused."""

import gc

import pytest
import torch

from gpu_conformance.arena import MAGIC, Arena
from gpu_conformance.graphs import CpuPool, Graph
from gpu_conformance.recorder import NotCapturable, recording, writing_form


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


def test_a_cast_is_replayed(graph):
    graph.capture("s", lambda x: x.to(torch.float64) + (x > 0).to(torch.int64), torch.ones(2))
    assert graph.replay("s", None, torch.tensor([-1.0, 3.0])).tolist() == [-1.0, 4.0]


def test_a_view_of_an_output_is_replayed(graph):
    graph.capture("s", lambda x: (x + 1).view(2, 2).t(), torch.zeros(4))
    assert graph.replay("s", None, torch.arange(4.0)).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_an_input_of_another_shape_is_refused(graph):
    graph.capture("s", lambda x: x + 1, torch.zeros(3))
    with pytest.raises(AssertionError, match=r"\(1,\) into a captured torch.float32 \(3,\)"):
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
    assert arena.intact()
    arena.bytes[block.start + block.size] = MAGIC ^ 1
    assert not arena.intact()


def test_an_arena_that_is_full_says_so():
    with pytest.raises(AssertionError, match="arena of 1024 bytes is full"):
        Arena(1024).like(torch.zeros(1000))


def test_a_guard_that_was_broken_is_told_once():
    arena = Arena(1 << 16)
    arena.bytes[0] = 0
    arena.mend()
    assert arena.intact()


def test_scrambling_spares_the_guards_and_nothing_else():
    arena = Arena(1 << 16)
    held, block = arena.like(torch.zeros(8))
    arena.scramble()
    assert held.isnan().all()
    assert arena.intact()
    assert block


def test_a_replay_depends_on_no_earlier_one(graph):
    graph.capture("s", lambda x: (x * 2).relu() + 1, torch.tensor([1.0, -2.0]))
    graph.pool.scramble()
    assert graph.replay("s", None, torch.tensor([-1.0, 3.0])).tolist() == [1.0, 7.0]


def test_an_input_at_the_captured_address_must_have_the_captured_shape():
    fixed = torch.zeros(3)
    graph = Graph(pool=CpuPool(), static=frozenset({fixed.data_ptr()}))
    graph.capture("s", lambda x: x + 1, fixed)
    with pytest.raises(AssertionError, match="into a captured"):
        graph.replay("s", None, fixed[:2])


def test_an_input_of_another_type_is_refused(graph):
    graph.capture("s", lambda x: x + 1, torch.zeros(3))
    with pytest.raises(AssertionError, match="float64"):
        graph.replay("s", None, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x + len(x.tolist()), "tolist"),
        (lambda x: x + x.sum().item(), "item|_local_scalar_dense"),
        (lambda x: x if x.sum() > 0 else -x, "__bool__|_local_scalar_dense"),
        (lambda x: x + int(x[0]), "__int__|_local_scalar_dense"),
        (lambda x: x * float(x.numpy()[0]), "numpy"),
        (lambda x: x.split([1, 2])[0] + 1, r"split\(list\)"),
        (lambda x: torch.split(x, split_size_or_sections=[1, 2])[0] + 1, r"split\(list\)"),
        (lambda x: x[x > 0], "depends on the data"),
        (lambda x: x.nonzero() + 1, "depends on the data"),
        (lambda x: x + torch.rand(3), "other numbers at each replay"),
    ],
)
def test_what_a_replay_would_not_do_again_is_refused(graph, function, told):
    with pytest.raises(NotCapturable, match=told):
        graph.capture("s", function, torch.ones(3))


def test_sizes_in_the_program_and_indices_in_a_tensor_are_captured(graph):
    index = torch.tensor([2, 0])
    graph.capture("s", lambda x, i: x.split(1)[0] + x[i], torch.ones(3), index)
    assert graph.replay("s", None, torch.tensor([1.0, 2.0, 3.0]), index).tolist() == [4.0, 2.0]


def test_a_tensor_that_no_batch_fills_is_refused(graph):
    outside = torch.ones(3)
    with pytest.raises(NotCapturable, match=r"reads a \(3,\) torch.float32 tensor that is no input"):
        graph.capture("s", lambda x: x + outside, torch.ones(3))


def test_a_literal_is_refused(graph):
    with pytest.raises(NotCapturable, match="no constant"):
        graph.capture("s", lambda x: x + torch.tensor([1.0, 2.0]), torch.ones(2))


def test_a_constant_is_read():
    weight = torch.full((3,), 5.0)
    graph = Graph(pool=CpuPool([weight]))
    assert graph.capture("s", lambda x: x * weight[:], torch.ones(3)).tolist() == [5.0] * 3


def test_what_one_capture_made_is_no_constant_of_the_next(graph):
    """As with weights that are made when they are first asked for: each replay would make them again."""
    made = []

    def lazy(x):
        if not made:
            made.append(x * 0 + 3)
        return x + made[0]

    graph.capture("s", lazy, torch.ones(3))
    with pytest.raises(NotCapturable, match="not made in the capture"):
        graph.capture("t", lazy, torch.ones(3))


def test_an_output_of_one_segment_is_an_input_of_the_next(graph):
    one = graph.capture("s", lambda x: x + 1, torch.zeros(3))
    graph.capture("t", lambda x: x * 2, one)
    one = graph.replay("s", None, torch.ones(3))
    assert graph.replay("t", None, one).tolist() == [4.0] * 3


def test_a_change_in_place_leaves_every_block_with_its_holder():
    """Both stand in the arena: the one that is changed must not be taken for a view of the other."""
    arena = Arena(1 << 16)
    with recording(arena):
        one, other = torch.ones(8), torch.ones(8)
        blocks = one.block, other.block
        one.add_(other)
        torch.add(one, other, out=other)
    assert (one.block, other.block) == blocks


def test_outputs_keep_the_order_of_their_axes():
    arena, turned = Arena(1 << 16), torch.arange(6.0).view(2, 3).t()
    with recording(arena, [turned]) as steps:
        made = turned * 2
    steps[0]()
    assert (made.stride(), made.tolist()) == ((1, 3), (turned * 2).tolist())


def test_operations_write_where_they_are_told_if_they_can():
    assert writing_form(torch.ops.aten.mm.default) == (torch.ops.aten.mm.out, ["out"])
    assert writing_form(torch.ops.aten.arange.default) is None


def test_an_output_on_memory_that_is_read_is_copied_there():
    """A weak handle was left on a block that was given away: what is read then is what stands there by then."""
    arena = Arena(1 << 16)
    weak = arena.holding(torch.tensor([[0.0, 2.0], [3.0, 1.0]])).detach()
    with recording(arena, [weak]) as steps:
        made = weak @ weak
    assert made.data_ptr() == weak.data_ptr()
    assert made.tolist() == [[6.0, 2.0], [3.0, 7.0]]
    steps[0]()
    assert made.tolist() == [[42.0, 26.0], [39.0, 55.0]]
