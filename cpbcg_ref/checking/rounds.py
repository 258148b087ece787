"""One round of a campaign: a family of cases searched with a seed of its own for a limited time."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

from hypothesis import Phase, reject
from hypothesis.database import ExampleDatabase
from hypothesis.errors import Flaky, Unsatisfiable

from cpbcg_ref.checking.database import DatabaseLost, Under
from cpbcg_ref.checking.family import RECORDED_CASES, FamilyRun, PartRun, Violation
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.strategies import cases_for

Key = tuple[str, int]  # an invariant's id and the index of its part
DIFFERENTLY = "the engine answered the same cases differently when asked again"
STORED, NEW = (Phase.reuse, Phase.shrink), (Phase.generate, Phase.shrink)


class TimeUp(KeyboardInterrupt):
    """Ends a search between two cases: Hypothesis lets it pass and does not store the case as a failing one."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Search these parts of one family; with shrink the only one of them, for the smallest case under this seed."""

    family: str
    keys: tuple[Key, ...]
    seed: int
    seconds: float
    shrink: bool = False

    def __post_init__(self) -> None:
        assert len(self.keys) == 1 if self.shrink else self.keys, "shrinking is for one part"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A violation as plain data. shrunk: Hypothesis found nothing smaller. stored: it came out of the database."""

    sentence: str
    case: Any
    seen: Any
    shrunk: bool = False
    stored: bool = False


@dataclass(frozen=True, kw_only=True)
class Fared:
    """How one part fared in a round. examples: up to the one that failed."""

    key: Key
    examples: int
    witnesses: dict[str, int]
    error: str
    found: Found | None


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a job came to. asked: cases put to the engine, shrinking included. lost: how the database failed."""

    job: Job
    lost: str
    asked: int
    seconds: float
    parts: tuple[Fared, ...]


@dataclass(kw_only=True)
class TimedRun(FamilyRun):
    """A family searched until a moment of time.monotonic(). Which functions run is not recorded: that would be slow."""

    until: float
    asked: int = RECORDED_CASES
    lost: str = ""

    def answers(self, case: Any) -> Any:
        if time.monotonic() >= self.until:
            raise TimeUp
        return super().answers(case)

    def alone(self, run: PartRun, number: int, **also: Any) -> Found | None:
        """The smallest violation of one part that a search finds before the time is up."""

        def smallest(case: Any) -> None:
            try:
                seen = self.ask(case)
            except Exception:
                reject()  # a case that breaks the adapter shows nothing about the engine
            run.examples += run.violation is None
            if sentence := run.part.check(case, seen, self.engine.contract):
                run.violation = Violation(sentence, case, seen)
                raise run.violation

        self.also, shrunk = also, False
        try:
            self.search(smallest, number)
        except Violation as found:
            run.violation, shrunk = found, True
            with suppress(TimeUp):
                self.trim(run)
        except TimeUp:
            pass  # Hypothesis tries ever smaller cases: the last that failed is the best so far
        except Flaky:
            run.error, run.violation = f"{DIFFERENTLY}: {run.violation}", None
        except (SkipTest, Unsatisfiable):
            pass  # nothing is stored, or the engine refused every case
        except DatabaseLost as problem:
            self.lost = str(problem)
        except (Exception, SystemExit) as problem:  # of the checker
            run.error = f"{type(problem).__name__}: {problem}"
        return found_by(run, shrunk=shrunk, stored=Phase.reuse in also["phases"])


@dataclass(kw_only=True)
class Searcher:
    """Does jobs on one engine; the checker knows what the engine can be asked."""

    checker: Checker
    database: ExampleDatabase | None

    def do(self, job: Job) -> Round:
        runs = {key: self.checker.part_run(key[0], REGISTRY[key[0]].parts[key[1]]) for key in job.keys}
        engine, began = self.checker.engine, time.monotonic()
        strategy = cases_for(job.family, engine.contract, deployment=self.checker.deployment)
        how: dict[str, Any] = {"family": job.family, "strategy": strategy, "profile": self.checker.profile}
        family = TimedRun(engine=engine, executed=set(), until=began + job.seconds, **how)
        found = (self.shrink if job.shrink else self.sweep)(family, job, runs)
        asked, seconds = family.asked - RECORDED_CASES, time.monotonic() - began
        parts = tuple(fared(key, run, found.get(key)) for key, run in runs.items())
        return Round(job=job, lost=family.lost, asked=asked, seconds=seconds, parts=parts)

    def shrink(self, family: TimedRun, job: Job, runs: dict[Key, PartRun]) -> dict[Key, Found | None]:
        """What the sweep found under this seed must come up again; what fails on the way there is stored."""
        ((key, run),) = runs.items()
        found = family.alone(run, job.seed, phases=NEW, database=self.own(job.family, key))
        if not (found or run.error or family.lost) and time.monotonic() < family.until:
            run.error = f"{DIFFERENTLY}: this time none failed"
        run.examples = 0  # they were counted in the sweep
        return {key: found}

    def sweep(self, family: TimedRun, job: Job, runs: dict[Key, PartRun]) -> dict[Key, Found | None]:
        """First what failed before, here or on another machine, then new cases for all the others at once."""
        found: dict[Key, Found | None] = {}
        for key, run in runs.items():
            if not family.lost and (database := self.own(job.family, key)):
                found[key] = family.alone(run, job.seed, phases=STORED, database=database)
        if wanting := [run for run in runs.values() if run.open]:
            family.also = {}
            with suppress(TimeUp):
                family.sweep(wanting, job.seed)
        return {key: found.get(key) or found_by(run) for key, run in runs.items()}

    def own(self, family: str, key: Key) -> ExampleDatabase | None:
        """The same for every machine, seed and version of the engine; only its name counts."""
        name = "/".join((self.checker.engine.name, family, *map(str, key)))
        return Under(self.database, name) if self.database else None


def found_by(run: PartRun, *, shrunk: bool = False, stored: bool = False) -> Found | None:
    if run.violation is None:
        return None
    plain = {"sentence": str(run.violation), "case": run.violation.case, "seen": run.violation.seen}
    return Found(**plain, shrunk=shrunk, stored=stored)


def fared(key: Key, run: PartRun, found: Found | None) -> Fared:
    told: dict[str, Any] = {"examples": run.examples, "witnesses": dict(run.witnesses)}
    return Fared(key=key, error=run.error, found=found, **told)
