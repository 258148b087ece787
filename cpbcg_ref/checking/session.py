"""Check many invariants of one target on all cores, as a stream of events.

A family is the unit of work: its invariants share the answers. Workers are processes, so that an engine's process-wide
state (modules, clocks, ranks) never meets another family's.
"""

import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import Deployment
from cpbcg_ref.checking.profiles import PROFILES, Profile
from cpbcg_ref.checking.results import Event, Finished, Progress, Started
from cpbcg_ref.checking.run import Checker, parts_of
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.invariants import REGISTRY

# Longest first, so that the last worker does not wait for the longest family.
LONGEST_FIRST = ("replay", "passes", "skewed-passes", "last-pass", "layout", "capture", "bad-layout", "attempts")
TELL_EVERY = 10  # examples

_worker: dict[str, Any] = {}  # this process's checker and queue, set once by `_begin`


def check(
    target: str,
    *,
    ids: Sequence[str] | None = None,
    profile: str = "ci",
    seed: int = 0,
    deployment: Deployment | None = None,
    allow_unpinned: bool = False,
    workers: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Iterator[Event]:
    """Yield `Started`, `Progress` and `Result` events in any order, then one `Finished`.

    `tell` receives lines for people while the target is fetched. Raises TargetError if the target cannot be obtained,
    before the first event.
    """
    engine = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
    chosen = tuple(REGISTRY) if ids is None else tuple(name for name in REGISTRY if name in set(ids))
    families = [f for f in order_of_work() if parts_of(f, chosen)]
    asked = [f for f in families if missing(engine, FAMILIES[f].capability) is None]
    began = time.perf_counter()
    yield Started(
        target=target,
        engine=engine.name,
        version=engine.version,
        invariants=chosen,
        profile=profile,
        seed=seed,
        budget=sum(PROFILES[profile].examples(f) for f in asked),
    )
    checker = Checker(engine=engine, target=target, profile=PROFILES[profile], seed=seed, deployment=deployment)
    yield from sweep_all(checker, families, chosen, workers or os.cpu_count() or 1)
    results = tuple(checker.result(name) for name in chosen)
    yield from results
    executed = tuple(sorted(checker.executed))
    yield Finished(results=results, executed=executed, seconds=time.perf_counter() - began)


def order_of_work() -> list[str]:
    return [*LONGEST_FIRST, *(f for f in FAMILIES if f not in LONGEST_FIRST)]


def sweep_all(checker: Checker, families: list[str], ids: Sequence[str], workers: int) -> Iterator[Event]:
    """Sweep the families side by side; the parts they judged end up in `checker`."""
    skipped = [f for f in families if missing(checker.engine, FAMILIES[f].capability)]
    for family in skipped:
        checker.sweep(family, ids)
    work = [f for f in families if f not in skipped]
    if not work:
        return
    context = multiprocessing.get_context()
    told: Any = context.Queue()
    options = (checker.target, checker.profile, checker.seed, checker.deployment)
    _worker["engine"] = checker.engine  # a forked worker finds it loaded; a spawned one resolves the target again
    with ProcessPoolExecutor(min(workers, len(work)), context, initializer=_begin, initargs=(told, options)) as pool:
        jobs = {pool.submit(_sweep, family, tuple(ids)): family for family in work}
        yield from progress(told, list(jobs))
        for job in jobs:
            parts, skipped, executed = job.result()
            checker.parts |= parts
            checker.skipped |= skipped
            checker.executed |= executed


def progress(told: Any, jobs: list[Future[Any]]) -> Iterator[Progress]:
    """What the workers tell until all jobs are done."""
    while not all(job.done() for job in jobs):
        try:
            yield told.get(timeout=0.1)
        except queue.Empty:
            wait_for(jobs, timeout=0)


def _begin(told: Any, options: tuple[str, Profile, int, Deployment | None]) -> None:
    target, profile, seed, deployment = options
    engine = _worker.get("engine") or resolve(target, allow_unpinned=True)
    tell = Teller(told)
    _worker["checker"] = Checker(
        engine=engine, target=target, profile=profile, seed=seed, deployment=deployment, on_example=tell
    )


def _sweep(family: str, ids: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """What this family added: judged parts, skipped parts, functions executed."""
    checker: Checker = _worker["checker"]
    checker.parts, checker.skipped = {}, {}
    checker.sweep(family, ids)
    return checker.parts, checker.skipped, checker.executed


class Teller:
    """Counts examples and tells the parent now and then: a message per example would cost more than the example."""

    def __init__(self, told: Any) -> None:
        self.told, self.count = told, 0

    def __call__(self, family: str) -> None:
        self.count += 1
        if self.count % TELL_EVERY == 0:
            self.told.put(Progress(family=family, examples=TELL_EVERY))
