"""Virtual ranks that meet in one collective."""

import pytest

from cpbcg_ref.answers import Raised

torch = pytest.importorskip("torch", reason="ranks meet with tensors: install the torch extra")


class Engine:
    roots = (__file__,)

    def __init__(self, combine):
        from cpbcg_ref.engines.all_reduce import AllReduce

        self.all_reduce = AllReduce(combine)

    def ask(self, ranks, how):
        return self.all_reduce.each_rank(self, ranks, how)


def both():
    return Engine(lambda stacked: stacked.sum(0))


def test_every_rank_receives_what_all_of_them_handed_in():
    engine = both()

    def square(rank):
        mine = torch.zeros(3, dtype=torch.int64)
        mine[rank] = rank + 5
        engine.all_reduce(mine)
        return rank, mine.tolist()

    assert engine.ask(3, square) == [(0, [5, 6, 7]), (1, [5, 6, 7]), (2, [5, 6, 7])]


def test_one_rank_alone_needs_no_other():
    assert both().ask(1, lambda rank: rank + 1) == [1]


def test_who_waits_for_a_rank_that_does_not_come_has_raised():
    engine = both()

    def leaves(rank):
        if rank == 1:
            return "left"
        return engine.all_reduce(torch.zeros(1))

    first, second = engine.ask(2, leaves)
    assert isinstance(first, Raised)
    assert (first.kind, first.message) == ("NobodyElseCame", "not every rank of the group comes to this collective")
    assert second == "left"


def test_a_rank_that_raises_before_the_collective_has_raised():
    engine = both()

    def raises(rank):
        if rank == 1:
            raise ValueError("no graph")
        return engine.all_reduce(torch.zeros(1))

    assert [one.kind for one in engine.ask(2, raises)] == ["NobodyElseCame", "ValueError"]
