"""All ranks in one process, in step: each runs to its next collective, then all get the result."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from gpu_conformance.collectives import operation
from gpu_conformance.failure import Failure, raised
from gpu_conformance.model import AllGather, Doing


def lockstep(ranks: Sequence[Any], *, tell: Callable[[str], None] = lambda doing: None) -> list[Any]:
    """What each rank's generator returns. Raises Failure for one that raises or parts ways with the others.

    tell: is told what the first rank, and so every rank, begins.
    """
    members, sent = [Member(rank, work) for rank, work in enumerate(ranks)], None
    members[0].tell = tell
    while True:
        asked = [member.next(sent) for member in members]
        if all(member.done for member in members):
            return [member.result for member in members]
        check_alike(members, asked)
        sent = torch.cat([one.rows for one in asked if one])


class Member:
    """One rank on its way: its generator, and what it did last."""

    def __init__(self, rank: int, work: Generator[AllGather | Doing, Any, Any]) -> None:
        self.rank, self.work, self.doing, self.last = rank, work, "", "starting"
        self.done, self.result = False, None
        self.tell: Callable[[str], None] = lambda doing: None

    def next(self, sent: torch.Tensor | None) -> AllGather | None:
        """The next collective, None at the end."""
        try:
            while isinstance(asked := self.work.send(sent), Doing):
                sent, self.doing, self.last = None, asked.what, asked.what
                self.tell(asked.what)
        except StopIteration as ended:
            self.done, self.result = True, ended.value
            return None
        except Exception as problem:
            raise raised(self.rank, self.last, problem) from problem
        self.last = operation(asked, self.doing)
        return asked


def check_alike(members: Sequence[Member], asked: Sequence[AllGather | None]) -> None:
    """Failure naming the rank that does what fewest do."""
    said = [f"{one.what} of {list(one.rows.shape)} {one.rows.dtype}" if one else "nothing" for one in asked]
    often = Counter(said)
    if len(often) > 1:
        odd = min(members, key=lambda member: (often[said[member.rank]], not member.done))
        kind = "finished early" if odd.done else "parted ways"
        detail = "; ".join(f"rank {rank} gathers {what}" for rank, what in enumerate(said))
        raise Failure(rank=odd.rank, kind=kind, last_operation=odd.last, detail=detail, stacks={})
