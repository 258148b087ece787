"""The process group of one virtual rank at a time, and a `torch` whose collectives answer for it."""

from collections.abc import Iterator
from typing import Any

from cpbcg_ref.engines.supplied import Bag


class Group:
    """What an engine asks of a process group: its size, this rank, and what every rank hands in to a collective."""

    def __init__(self) -> None:
        self.size, self.rank, self.handed_in = 1, 0, list[Any]()

    def each_rank(self, size: int) -> Iterator[int]:
        """This process is one rank after the other."""
        self.size = size
        for self.rank in range(size):
            yield self.rank

    def handing_in(self, rows: list[Any]) -> Iterator[tuple[int, Any]]:
        """Each rank with its rows; the all-gather gives it those of all."""
        self.handed_in = rows
        return zip(self.each_rank(len(rows)), rows, strict=True)

    def all_gather(self, output: list[Any], own: Any, group: Any = None) -> None:
        for mine, theirs in zip(output, self.handed_in, strict=True):
            mine.copy_(theirs)

    def torch(self) -> Any:
        """For a module of an engine as its global `torch`: the real one, but for the collectives."""
        import torch

        collectives = {"get_world_size": lambda group=None: self.size, "get_rank": lambda group=None: self.rank}
        return Bag(**vars(torch) | {"distributed": Bag(**collectives, all_gather=self.all_gather)})
