"""Check many invariants of one target on all cores.

A family is the unit of work: its invariants share the answers. Workers are processes, so that an engine's process-wide
state (modules, clocks, ranks) never meets another family's.
"""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import Deployment
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants import REGISTRY

Swept = tuple[dict[tuple[str, int], Result], set[str]]  # verdicts by id and part, functions executed
_engines: dict[str, Any] = {}  # by target: a forked worker finds the engine loaded, a spawned one loads it again


def check(
    target: str,
    *,
    ids: Iterable[str] | None = None,
    profile: str = "ci",
    seed: int = 0,
    deployment: Deployment | None = None,
    allow_unpinned: bool = False,
    workers: int | None = None,
    reproduce: str = "",
    tell: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda engine, done, total: None,
) -> Report:
    """Verdicts on the invariants `ids`, on all if None.

    `reproduce`: further options for the commands that reproduce a verdict. `tell` receives lines for people while the
    target is fetched; `progress` the engine's name and how many of how many families are done. Raises TargetError if
    the target cannot be obtained, CpbcgError if the engine ends a worker process.
    """
    engine = _engines[target] = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
    name, chosen = f"{engine.name} {engine.version}", tuple(REGISTRY if ids is None else ids)
    asked = {part.family for one in chosen for part in REGISTRY[one].parts}
    families = [family for family in FAMILIES if family in asked]
    told: dict[str, Any] = {"target": target, "profile": profile, "seed": seed}
    options = told | {"deployment": deployment, "options": reproduce}
    checker, began = Checker(engine=engine, **options), time.perf_counter()
    with ProcessPoolExecutor(min(workers or os.cpu_count() or 1, len(families))) as pool:
        jobs = [pool.submit(sweep, family, chosen, options) for family in families]
        progress(name, 0, len(jobs))
        for done, job in enumerate(as_completed(jobs), start=1):
            judged, executed = result_of(job)
            checker.judged |= judged
            checker.executed |= executed
            progress(name, done, len(jobs))
    told |= {"engine": engine.name, "version": engine.version, "seconds": time.perf_counter() - began}
    results, ran = tuple(map(checker.result, chosen)), tuple(sorted(checker.executed))
    return Report(**told, results=results, executed=ran, about_deployment=deployment is not None)


def result_of(job: Future[Swept]) -> Swept:
    try:
        return job.result()
    except BrokenProcessPool:
        raise CpbcgError(
            "a worker process died while it ran the engine's code: run with --select to find where"
        ) from None


def sweep(family: str, ids: tuple[str, ...], options: dict[str, Any]) -> Swept:
    """In a worker: the verdicts on one family and the functions that ran."""
    target = options["target"]
    if target not in _engines:
        _engines[target] = resolve(target, allow_unpinned=True)
    checker = Checker(engine=_engines[target], **options)
    checker.sweep(family, ids)
    return checker.judged, checker.executed
