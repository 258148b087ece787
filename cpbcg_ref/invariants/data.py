"""data.*: what a replay computes. Registered here; asking needs an engine that runs real tensors."""

from typing import Any

from cpbcg_ref.invariants.model import MUST, Invariant, Part


def not_asked_yet(case: Any, seen: Any, contract: Any) -> str | None:
    """Never a pass by accident."""
    raise NotImplementedError("data.* cannot be judged from row counts: no engine with the data capability exists yet")


def must(name: str, statement: str, *sources: str) -> Invariant:
    part = Part(family="data", check=not_asked_yet)
    return Invariant(id=f"data.{name}", level=MUST, statement=statement, parts=(part,), sources=sources)


INVARIANTS = [
    must(
        "replay-equals-eager",
        "replay = eager on every live row, and no live row is missing",
        *("sglang#27343", "sglang#37606", "sglang#37448", "sglang#29018", "sglang#31391", "sglang#33726"),
    ),
    must(
        "history-free",
        "replay(A); replay(B) = replay(B)",
        *("sglang#24743", "sglang#32477", "sglang#35588", "sglang#34184"),
    ),
    must(
        "padding-inert",
        "two different valid fillings of the padding give bit-identical live rows",
        *("sglang#40629", "sglang#35766"),
    ),
    must("in-bounds", "no read or write outside the captured capacity", "sglang#35876"),
]
