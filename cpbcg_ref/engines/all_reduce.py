"""A group of virtual ranks that come together in one all-reduce, in one process.

Each rank runs twice: up to the collective, to hand in its tensor, and then to the end, receiving what all of them give.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cpbcg_ref.asking import OnItsBehalf, answered


class HandedIn(BaseException):
    """Ends the first run of a rank: it has arrived at the collective."""


class NobodyElseCame(OnItsBehalf):
    """What a rank gets from a collective that would hang on real hardware."""


class AllReduce:
    """combine: what the collective makes of a stack of tensors, such as its sum over dimension 0."""

    def __init__(self, combine: Callable[[Any], Any]) -> None:
        self.combine, self.rank, self.handed_in = combine, 0, list[Any]()
        self.gathering = False

    def __call__(self, tensor: Any, *args: Any, **options: Any) -> None:
        import torch

        if self.gathering:
            self.handed_in[self.rank] = tensor.clone()
            raise HandedIn
        if any(other is None for other in self.handed_in):
            raise NobodyElseCame("not every rank of the group comes to this collective")
        tensor.copy_(self.combine(torch.stack(self.handed_in)))

    def each_rank(self, engine: Any, ranks: int, ask: Callable[[int], Any]) -> list[Any]:
        """What every rank answers, or the `Raised` of one that raised; `ask` runs as the rank that it is given."""
        self.handed_in, self.gathering = [None] * ranks, ranks > 1
        for self.rank in range(ranks if ranks > 1 else 0):
            with suppress(HandedIn):
                answered(engine, ask, self.rank)
        self.gathering, answers = False, []
        for self.rank in range(ranks):
            answers.append(answered(engine, ask, self.rank))
        return answers
