"""The process group of one virtual rank at a time, and a `torch` whose collectives answer for it."""

from typing import Any

from cpbcg_ref.engines.sglang_process import Bag


class Group:
    """What an engine asks of a process group: its size, this rank, and what every rank hands in to a collective."""

    def __init__(self) -> None:
        self.size, self.rank, self.handed_in = 1, 0, list[Any]()

    def enter(self, *, cp_size: int, cp_rank: int) -> "Group":
        self.size, self.rank = cp_size, cp_rank
        return self

    def all_gather(self, output: list[Any], own: Any, group: Any = None) -> None:
        for mine, theirs in zip(output, self.handed_in, strict=True):
            mine.copy_(theirs)

    def torch(self) -> Any:
        """For a module of an engine as its global `torch`: the real one, but for the collectives."""
        import torch

        collectives = {"get_world_size": lambda group=None: self.size, "get_rank": lambda group=None: self.rank}
        return Bag(**vars(torch) | {"distributed": Bag(**collectives, all_gather=self.all_gather)})
