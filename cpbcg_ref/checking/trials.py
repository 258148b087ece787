"""The catalogue of seeded faults put to the test, on all cores.

A fault is caught if every trial catches it by an invariant that its entry names. The right engines that the miniatures
were made from are asked the same cases and must violate nothing; right variants must not be flagged. Plants are defects
in replayed data: ranks in step serve the same batches with each of them and with none.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import generators, planted
from cpbcg_ref.checking.answering import begin
from cpbcg_ref.checking.generators import Measured
from cpbcg_ref.checking.hunting import Trial, alike, hunt, shrunk
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.faults import FAULTS, VARIANTS
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import MUST

VARIANT_PROFILE = "ci"
MUSTS = [name for name, one in REGISTRY.items() if one.level == MUST]
DIED = "a worker process died while it ran a miniature: run with --select to find which"
Answer = TypeVar("Answer")


@dataclass(kw_only=True)
class Outcome:
    """What the trials came to. controls: of the right engines. shrunk: sizes. flagged: by id the reason."""

    seed: int
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    controls: list[Trial] = field(default_factory=list)
    shrunk: dict[tuple[str, int], int | None] = field(default_factory=dict)  # by key and seed
    flagged: dict[str, dict[str, str]] = field(default_factory=dict)  # by the variant's key
    generators: list[Measured] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Jobs:
    """What was handed to the workers, and how much of it came back."""

    pool: ProcessPoolExecutor
    progress: Callable[[int, int], None]
    sent: int = 0
    back: int = 0

    def send(self, function: Callable[..., Answer], *args: Any) -> Future[Answer]:
        self.sent += 1
        return self.pool.submit(function, *args)

    def answer(self, job: Future[Answer]) -> Answer:
        try:
            found = job.result()
        except BrokenProcessPool:
            raise CpbcgError(DIED) from None
        self.back += 1
        self.progress(self.back, self.sent)
        return found


def run(
    faults: Sequence[str],
    variants: Iterable[str],
    plants: Sequence[str] = (),
    *,
    trials: int = 10,
    seed: int = 0,
    workers: int | None = None,
    shrink_all: bool = False,
    compare_generators: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Trials of these faults with the seeds from `seed` on; only the first of each is shrunk, or all of them.

    `progress` is told how many of how many jobs are done. Raises CpbcgError if a miniature ends a worker process.
    """
    outcome, began = Outcome(seed=seed, trials={key: [] for key in (*faults, *plants)}), time.perf_counter()
    groups, compared = grouped(faults), generators.COMPARED if compare_generators else ()
    seeds = range(seed, seed + trials)
    with (
        TemporaryDirectory(prefix="cpbcg-") as home,  # what Hypothesis notes on the code around it
        ProcessPoolExecutor(workers or os.cpu_count(), initializer=begin, initargs=(home,)) as pool,
    ):
        jobs = Jobs(pool, progress)
        hunts = [jobs.send(hunt, keys, number) for number in seeds for keys in groups]
        planting = [jobs.send(planted.hunt, key, number) for number in seeds for key in plants]
        unplanted = [jobs.send(planted.control, number) for number in seeds if plants]
        measured = [jobs.send(generators.measure, *one) for one in compared]
        flagged = {key: jobs.send(flags, key, seed) for key in variants}
        for found, control in map(jobs.answer, hunts):
            outcome.controls.append(control)
            for trial in found:
                outcome.trials[trial.key].append(trial)
        shrinking = {
            (trial.key, trial.seed): jobs.send(shrunk, trial.key, trial.hunts[0])
            for of_fault in map(outcome.trials.__getitem__, faults)
            for trial in (of_fault if shrink_all else of_fault[:1])
            if trial.hunts[0].found
        }
        for trial in map(jobs.answer, planting):
            outcome.trials[trial.key].append(trial)
        outcome.controls += map(jobs.answer, unplanted)
        outcome.generators = list(map(jobs.answer, measured))
        outcome.flagged = {key: jobs.answer(job) for key, job in flagged.items()}
        outcome.shrunk = {key: jobs.answer(job) for key, job in shrinking.items()}
    outcome.seconds = time.perf_counter() - began
    return outcome


def grouped(keys: Iterable[str]) -> list[tuple[str, ...]]:
    groups = defaultdict(list)
    for key in keys:
        groups[alike(FAULTS[key])].append(key)
    return list(map(tuple, groups.values()))


def flags(key: str, seed: int) -> dict[str, str]:
    """What flags a right variant: every MUST id that is neither passed nor excluded, and why."""
    how: dict[str, Any] = {"engine": VARIANTS[key].engine, "target": f"variant:{key}", "profile": VARIANT_PROFILE}
    checker = Checker(seed=seed, recorded=0, **how)
    for family in FAMILIES:
        checker.sweep(family, MUSTS)
    results = map(checker.result, MUSTS)
    return {one.invariant: f"{one.outcome}: {one.message}" for one in results if one.outcome not in ("pass", "skip")}
