"""Run the same code once per rank in one process, with one collective in the middle, in a fixed order.

Every rank has its own thread, but only one runs at a time: rank 0 until it gathers or ends, then rank 1, and so on;
when all have arrived, the gather is carried out and each goes on to its end. The threads are used again by later runs.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any


class CollectiveFailed(Exception):
    """What a rank gets from a gather that would hang or break on real hardware."""


class _Strand:
    """A thread that runs a function up to its next pause when told to."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        threading.Thread(target=self._loop, daemon=True, name="cpbcg-rank").start()

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            self._function()
            self._back.release()

    def start(self, function: Callable[[], None]) -> None:
        self._function = function
        self.resume()

    def resume(self) -> None:
        self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        self._back.release()
        self._go.acquire()


_idle: list[_Strand] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has the list, but not the threads


class Rank:
    """One rank in a run: the handle through which its code gathers, and what came out of it."""

    def __init__(self) -> None:
        self.strand: _Strand
        self.contribution: Any = None
        self.gathered: Any = None  # a function of the output tensor, or the error to raise
        self.result: Any = None
        self.error: BaseException | None = None

    def all_gather(self, output: Any, contribution: Any) -> None:
        """Give one tensor, wait for the others, fill `output` with all of them in rank order."""
        if self.contribution is not None:
            raise CollectiveFailed("this rank gathers a second time in the same pass")
        self.contribution = contribution
        self.strand.pause()
        if isinstance(self.gathered, CollectiveFailed):
            raise self.gathered
        if output.numel() != self.gathered.numel():
            raise CollectiveFailed(f"{self.gathered.numel()} values do not fit a buffer of {output.numel()}")
        output.copy_(self.gathered.view_as(output))

    def work(self, function: Callable[["Rank"], Any]) -> None:
        try:
            self.result = function(self)
        except BaseException as error:  # the caller of `lockstep` decides; a dead thread would leave it waiting
            self.error = error


def lockstep(functions: Sequence[Callable[[Rank], Any]], join: Callable[[list[Any]], Any]) -> list[Rank]:
    """Run one function per rank; `join` makes one tensor of the ranks' contributions. Returns the ranks when all ended.

    A rank that ends without gathering does not block the others: their gather raises CollectiveFailed.
    """
    ranks = [Rank() for _ in functions]
    for rank, function in zip(ranks, functions, strict=True):
        rank.strand = _idle.pop() if _idle else _Strand()
        rank.strand.start(lambda rank=rank, function=function: rank.work(function))  # type: ignore[misc]
    gathered = _gather(ranks, join)
    for rank in ranks:
        if rank.contribution is not None:
            rank.gathered = gathered
            rank.strand.resume()
    _idle.extend(rank.strand for rank in ranks)  # strands of an interrupted run are not taken back
    return ranks


def _gather(ranks: list[Rank], join: Callable[[list[Any]], Any]) -> Any:
    absent = [str(number) for number, rank in enumerate(ranks) if rank.contribution is None]
    if absent:
        return CollectiveFailed(f"rank {', '.join(absent)} never joins this gather")
    return join([rank.contribution for rank in ranks])
