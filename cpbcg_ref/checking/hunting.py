"""One seeded trial of several miniatures: how many examples, until each invariant that must catch one has.

Miniatures that were made from one right engine get the same cases. So one search asks them all, and the right engine
beside them: that is the control.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import given, seed

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.answering import Hangs, ask
from cpbcg_ref.checking.family import RECORDED_CASES, FamilyRun, PartRun
from cpbcg_ref.checking.profiles import quiet_settings
from cpbcg_ref.checking.run import ROUNDS
from cpbcg_ref.checking.single import why_not
from cpbcg_ref.checking.size import size
from cpbcg_ref.faults import FAULTS, Fault
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Part
from cpbcg_ref.strategies import cases_for

PROFILE = "ci"
TRIAL_SECONDS = 60.0


@dataclass(kw_only=True)
class Hunt:
    """One id, looked for in one engine. found, seed, family: the failure, and the cases that showed it.

    examples, seconds: to the failure in that family, or in the one asked last; of CPU, generating included.
    """

    id: str
    examples: int = 0
    seconds: float = 0.0
    seed: int = 0
    family: str = ""
    found: str = ""


@dataclass(kw_only=True)
class Trial:
    """One engine, searched from one seed. asked: cases put to it. seconds: of CPU. error: why it was given up."""

    key: str
    seed: int
    hunts: tuple[Hunt, ...]
    asked: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def soonest(self) -> Hunt | None:
        """The id that was violated first; None if none was."""
        return min((hunt for hunt in self.hunts if hunt.found), key=lambda hunt: hunt.examples, default=None)


@dataclass(kw_only=True)
class Subject:
    """An engine in a trial, and what is looked for in the family of cases that is asked now."""

    trial: Trial
    engine: Any
    sought: Sequence[tuple[Hunt, Part]] = ()

    def turn_to(self, family: str) -> None:
        left = [hunt for hunt in self.trial.hunts if not hunt.found]
        self.sought = [(hunt, part) for hunt in left for part in parts(hunt.id, self.engine, family)]
        for hunt, _ in self.sought:
            hunt.examples, hunt.seconds = 0, 0.0

    @property
    def open(self) -> bool:
        over = self.trial.error or self.trial.seconds >= TRIAL_SECONDS
        return not over and any(not hunt.found for hunt, _ in self.sought)

    def ask(self, family: str, case: Any, number: int, generating: float) -> None:
        """Judge one case; a ladder that the engine cannot capture is no example, as in a check."""
        began, trial = time.process_time(), self.trial
        left = [(hunt, part) for hunt, part in self.sought if not hunt.found]
        try:
            seen = ask(self.engine, family, case)
            wrong = [part.check(case, seen, self.engine.contract) for _, part in left]
        except CaptureFailed:
            return
        except (Exception, SystemExit, Hangs) as problem:
            trial.error = f"{type(problem).__name__}: {problem}"
            return
        spent = generating + time.process_time() - began
        trial.asked, trial.seconds = trial.asked + 1, trial.seconds + spent
        for hunt in {hunt.id: hunt for hunt, _ in left}.values():
            hunt.examples, hunt.seconds = hunt.examples + 1, hunt.seconds + spent
        for (hunt, _), sentence in zip(left, wrong, strict=True):
            if sentence and not hunt.found:
                hunt.found, hunt.family, hunt.seed = sentence, family, number


class Ended(Exception):
    """Nothing is left to look for."""


def parts(invariant_id: str, engine: Any, family: str) -> list[Part]:
    """The parts of an invariant that this engine can be asked with cases of this family."""
    return [part for part in REGISTRY[invariant_id].parts if part.family == family and not why_not(engine, part)]


def families_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Families that these ids ask, those that cost least first: what is found there is not looked for again."""
    asked = {part.family for one in ids for part in REGISTRY[one].parts}
    return tuple(family for family in reversed(FAMILIES) if family in asked)


def alike(fault: Fault) -> tuple[Any, ...]:
    """Faults for which this is the same can be hunted together."""
    return fault.base, repr(fault.engine.contract), families_of(fault.expected)


def hunt(keys: Sequence[str], number: int) -> tuple[list[Trial], Trial]:
    """A trial of each of these faults, which are alike, and the one of their right engine."""
    faults = [FAULTS[key] for key in keys]
    subjects = [subject(fault.key, fault.engine, fault.expected, number) for fault in faults]
    ids = {name: None for fault in faults for name in fault.expected}
    right = faults[0].base()
    control = subject(right.name, right, ids, number)
    for family in families_of(ids):
        for one in (*subjects, control):
            one.turn_to(family)
        ask_family(family, subjects, control, number)
    return [one.trial for one in subjects], control.trial


def ask_family(family: str, subjects: Sequence[Subject], control: Subject, number: int) -> None:
    """Cases until all is found, and as many for the right engine: the same ones unless its contract is another."""
    alike = repr(control.engine.contract) == repr(subjects[0].engine.contract)
    everyone = [*subjects, control] if alike else subjects
    asked = search(family, everyone, number, lambda _: any(one.open for one in subjects))
    if not alike:
        search(family, [control], number, lambda done: done < asked)


def subject(key: str, engine: Any, ids: Iterable[str], number: int) -> Subject:
    return Subject(trial=Trial(key=key, seed=number, hunts=tuple(Hunt(id=name) for name in ids)), engine=engine)


def search(family: str, subjects: Sequence[Subject], number: int, go_on: Callable[[int], bool]) -> int:
    """Put generated cases to these engines, which share a contract, while `go_on` says so; how many they were.

    `go_on` is told how many there were. The seeds and the number of examples are those of a check.
    """
    strategy = cases_for(family, subjects[0].engine.contract)
    asked, now, ended = 0, number, time.process_time()

    def each(case: Any) -> None:
        nonlocal asked, ended
        generating = time.process_time() - ended
        if not go_on(asked):
            raise Ended
        asked += 1
        for one in subjects:
            if one.open:
                one.ask(family, case, now, generating)
        ended = time.process_time()

    for now in range(number, number + 7919 * ROUNDS, 7919):
        if go_on(asked):
            with suppress(Ended):
                seed(now)(quiet_settings(PROFILE, family, shrink=False)(given(case=strategy)(each)))()
    return asked


def shrunk(key: str, caught: Hunt) -> int | None:
    """Size of the case that a check shrinks this finding to; None if the engine does not fail again."""
    engine = FAULTS[key].engine
    how: dict[str, Any] = {"engine": engine, "profile": PROFILE, "executed": set(), "asked": RECORDED_CASES}
    family = FamilyRun(family=caught.family, strategy=cases_for(caught.family, engine.contract), **how)
    for part in parts(caught.id, engine, caught.family):  # the first of them that fails, as in a check
        run = PartRun(part=part, seed=caught.seed)
        family.shrink(run)
        if run.violation:
            return size(run.violation.case)
    return None
