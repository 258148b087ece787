"""data.*: what a replay computes. Registered here; `gpu_conformance` judges them, on real tensors."""

from functools import partial
from typing import Any

from cpbcg_ref.invariants.model import Judge, Sentences, invariant


def not_asked_yet(judge: Any) -> Judge:
    """Never a pass by accident."""

    def check(case: Any, seen: Any, contract: Any) -> Sentences:
        raise NotImplementedError("data.* cannot be judged from row counts: run python -m gpu_conformance")

    return check


data = partial(invariant, family="data", each=not_asked_yet)


@data("data.replay-equals-eager", sources="27343 37606 37448 29018 31391 33726")
def replay_equals_eager() -> None:
    """Replay = eager on every live row, and no live row is missing."""


@data("data.history-free", sources="24743 32477 35588 34184")
def history_free() -> None:
    """replay(A); replay(B) = replay(B)."""


@data("data.padding-inert", sources="40629 35766")
def padding_inert() -> None:
    """Two different valid fillings of the padding give bit-identical live rows."""


@data("data.in-bounds", sources="35876")
def in_bounds() -> None:
    """No read or write outside the captured capacity."""
