"""Check many invariants of one target on all cores.

A family is the unit of work: its invariants share the answers. Workers are processes, so that an engine's process-wide
state (modules, clocks, ranks) never meets another family's.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis.configuration import set_hypothesis_home_dir, storage_directory

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking.answering import begin
from cpbcg_ref.checking.known import KnownFailure, as_known, covering
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants import REGISTRY

DIED = "a worker process died while it ran the engine's code: run with --select to find where"
Swept = tuple[dict[tuple[str, int], Result], set[str]]  # verdicts by id and part, functions executed
_engines: dict[str, Any] = {}  # by target: a forked worker finds the engine loaded, a spawned one loads it again


def check(
    target: str,
    *,
    ids: Iterable[str] | None = None,
    known_failures: Sequence[KnownFailure] = (),
    allow_unpinned: bool = False,
    workers: int | None = None,
    tell: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda engine, done, total: None,
    **search: Any,
) -> Report:
    """Verdicts on the invariants `ids`, on all if None. `search`: the fields of a `Checker`, such as seed.

    `known_failures`: those that cover the engine's version are marked where they fail, and not shrunk.
    `tell` receives lines for people while the target is fetched; `progress` the engine's name and how many of how many
    families are done. Raises TargetError if the target cannot be obtained, CpbcgError if the engine ends a worker
    process.
    """
    engine = _engines[target] = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
    name, chosen = f"{engine.name} {engine.version}", tuple(REGISTRY if ids is None else ids)
    asked = {part.family for one in chosen for part in REGISTRY[one].parts}
    families = [family for family in FAMILIES if family in asked]
    known = covering(known_failures, engine.version)
    search["known"] = frozenset(known)
    checker, began = Checker(engine=engine, target=target, **search), time.perf_counter()
    count = min(workers or os.cpu_count() or 1, len(families))
    with (
        own_home() as home,
        ProcessPoolExecutor(count, initializer=begin, initargs=(home,)) as pool,
    ):
        jobs = [pool.submit(sweep, family, chosen, target, search) for family in families]
        progress(name, 0, len(jobs))
        for done, job in enumerate(as_completed(jobs), start=1):
            judged, executed = result_of(job)
            checker.judged |= judged
            checker.executed |= executed
            progress(name, done, len(jobs))
    return reported(checker, chosen, known, seconds=time.perf_counter() - began)


def check_here(
    checker: Checker, chosen: Sequence[str], *, known_failures: Sequence[KnownFailure] = (), among: Sequence[str]
) -> Report:
    """Verdicts on the invariants `chosen`, in this process: for an engine that is an object.

    A family is asked for all invariants `among` which they are; what the checker has judged is not judged again.
    """
    known, began = covering(known_failures, checker.engine.version), time.perf_counter()
    checker.known = frozenset(known)
    parts = {(one, index): part for one in chosen for index, part in enumerate(REGISTRY[one].parts)}
    with own_home():
        for family in dict.fromkeys(part.family for key, part in parts.items() if key not in checker.judged):
            checker.sweep(family, among)
    return reported(checker, chosen, known, seconds=time.perf_counter() - began)


@contextmanager
def own_home() -> Iterator[str]:
    """Hypothesis keeps notes on the code around it: meanwhile in this folder, not in the user's."""
    former = storage_directory(intent_to_write=False).path
    with TemporaryDirectory(prefix="cpbcg-") as home:
        set_hypothesis_home_dir(home)
        try:
            yield home
        finally:
            set_hypothesis_home_dir(former)


def reported(checker: Checker, chosen: Sequence[str], known: Mapping[str, KnownFailure], *, seconds: float) -> Report:
    engine, target = checker.engine, checker.target
    told = {"target": target, "engine": engine.name, "version": engine.version, "seconds": seconds}
    told |= {"profile": checker.profile, "seed": checker.seed, "about_deployment": checker.deployment is not None}
    results = tuple(as_known(checker.result(one), known.get(one)) for one in chosen)
    return Report(**told, results=results, executed=tuple(sorted(checker.executed)))


def result_of(job: Future[Swept]) -> Swept:
    try:
        return job.result()
    except BrokenProcessPool:
        raise CpbcgError(DIED) from None


def sweep(family: str, ids: tuple[str, ...], target: str, search: dict[str, Any]) -> Swept:
    """In a worker: the verdicts on one family and the functions that ran."""
    if target not in _engines:
        _engines[target] = resolve(target, allow_unpinned=True)
    checker = Checker(engine=_engines[target], target=target, **search)
    checker.sweep(family, ids)
    return checker.judged, checker.executed
