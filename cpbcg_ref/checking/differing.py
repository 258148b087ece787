"""Compare two targets: families of cases are searched in worker processes, each with a process per engine."""

import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hypothesis.configuration import set_hypothesis_home_dir

from cpbcg_ref.checking.differences import Compared, Comparison
from cpbcg_ref.checking.functions import FUNCTIONS
from cpbcg_ref.checking.pairs import Search
from cpbcg_ref.checking.session import own_home
from cpbcg_ref.checking.sides import Described, Pair, Tell
from cpbcg_ref.errors import CpbcgError

DIED = "a worker process died while it compared the engines"
Engines = tuple[Described, Described]
T = TypeVar("T")
_pair: Pair | None = None  # in a worker


def diff(
    left: str,
    right: str,
    *,
    ids: Iterable[str] | None = None,
    profile: str = "ci",
    seed: int = 0,
    seconds: float = math.inf,
    workers: int | None = None,
    allow_unpinned: bool = False,
    tell: Tell | None = None,
    progress: Callable[[str, int, int], None] = lambda engines, done, total: None,
) -> Comparison:
    """How two targets compare in the functions `ids`, in all if None; after so many seconds in what was asked by then.

    workers: families that are searched at the same time, by two processes of engines each; by default one for every
    two processors. `tell` receives lines for people while targets are fetched; `progress` the engines' names and how
    many of how many families are done. Raises TargetError if a target cannot be obtained, CpbcgError if a worker dies.
    """
    began, until = time.perf_counter(), time.monotonic() + seconds
    families = by_family(FUNCTIONS if ids is None else ids)
    count = min(workers or max(1, (os.cpu_count() or 1) // 2), max(1, len(families)))
    results: dict[str, Compared] = {}
    with (
        own_home() as home,
        ProcessPoolExecutor(count, initializer=begin, initargs=(home, (left, right), allow_unpinned, tell)) as pool,
    ):
        engines = answer_of(pool.submit(describe))
        how: dict[str, Any] = {"engines": engines, "profile": profile, "seed": seed}
        jobs = [
            pool.submit(search, family, own, until, (len(families) - begun) / count, how)
            for begun, (family, own) in enumerate(families.items())
        ]
        names = " and ".join(f"{engine.name} {engine.version}" for engine in engines)
        progress(names, 0, len(jobs))
        for done, job in enumerate(as_completed(jobs), start=1):
            results |= {one.function: one for one in answer_of(job)}
            progress(names, done, len(jobs))
    told = tuple(results[name] for own in families.values() for name in own)
    return Comparison(results=told, seconds=time.perf_counter() - began, **how)


def by_family(ids: Iterable[str]) -> dict[str, list[str]]:
    """The ids of functions by their family, in the order of the catalogue."""
    wanted = set(ids)
    families: dict[str, list[str]] = {}
    for name, one in FUNCTIONS.items():
        if name in wanted:
            families.setdefault(one.family, []).append(name)
    return families


def answer_of(job: Future[T]) -> T:
    try:
        return job.result()
    except BrokenProcessPool:
        raise CpbcgError(DIED) from None


def begin(home: str, targets: tuple[str, str], allow_unpinned: bool, tell: Tell | None) -> None:
    """In a new worker. The engines are loaded when they are asked first."""
    global _pair
    set_hypothesis_home_dir(home)
    _pair = Pair(targets, allow_unpinned=allow_unpinned, tell=tell)


def describe() -> Engines:
    assert _pair, "a worker has begun"
    return _pair.describe()


def search(family: str, ids: list[str], until: float, waiting: float, how: dict[str, Any]) -> list[Compared]:
    """In a worker. waiting: families for each worker that are not searched yet, between which the time is divided."""
    assert _pair, "a worker has begun"
    now = time.monotonic()
    own = now + (until - now) / max(1.0, waiting)
    return Search(pair=_pair, family=family, until=own, **how).compare(ids)
