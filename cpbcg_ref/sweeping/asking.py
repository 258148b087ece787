"""A part put to a target: what a worker does, here or on another machine. Plain data goes in and comes out."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.sweeping import batches, search
from cpbcg_ref.sweeping.scope import Part, Search

obtained = lru_cache(maxsize=1)(resolve)


def answer(target: str, part: Part) -> dict[str, Any]:
    """What the sweep of one part found."""
    engine = obtained(target, allow_unpinned=True)  # the caller has obtained it before, or was refused
    return search.sweep(engine, part) if isinstance(part, Search) else batches.sweep(engine, part)


def worker(target: str) -> Callable[[Part], dict[str, Any]]:
    """For `checking.workers`."""
    obtained(target, allow_unpinned=True)
    return lambda part: answer(target, part)
