"""Ask an engine one family of cases and judge all invariants of that family on the same answers.

Asking costs more than judging, so one sweep serves every invariant of the family. An invariant that fails in the sweep
is then searched alone, with the same seed, and shrunk.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, reject, seed
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.executed import recording
from cpbcg_ref.checking.profiles import Profile, quiet_settings
from cpbcg_ref.errors import TargetError
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Part

RECORDED_CASES = 5


@dataclass(kw_only=True)
class PartRun:
    """How one invariant's part fared. `failed_seed` reproduces the first violation."""

    key: str  # "id#index" of the part in the registry
    examples: int = 0
    seconds: float = 0.0
    sentence: str = ""
    case: Any = None
    seen: Any = None
    failed_seed: int | None = None
    error: str = ""
    witnesses: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.witnesses = dict.fromkeys(self.part.witnesses, 0)

    @property
    def part(self) -> Part:
        return part_of(self.key)

    @property
    def unmet(self) -> list[str]:
        return [name for name, count in self.witnesses.items() if not count]

    @property
    def open(self) -> bool:
        return not self.sentence and not self.error

    def judge(self, case: Any, seen: Any, contract: Any) -> None:
        """Count the witnesses and keep the first violation; a checker that raises is an error, never a verdict."""
        began, part = time.perf_counter(), self.part
        try:
            self.examples += 1
            for name in self.witnesses:
                self.witnesses[name] += bool(part.witnesses[name](case, seen))
            sentence = part.check(case, seen, contract)
        except Exception as problem:
            self.error, sentence = f"the checker raised {type(problem).__name__}: {problem} on {case!r}", None
        if sentence:
            self.sentence, self.case, self.seen = sentence, case, seen
        self.seconds += time.perf_counter() - began


def part_of(key: str) -> Part:
    name, index = key.split("#")
    return REGISTRY[name].parts[int(index)]


class Violated(Exception):
    """Raised inside Hypothesis so that it shrinks; carries the case, the answers and the sentence."""


@dataclass(kw_only=True)
class FamilyRun:
    """One family on one engine."""

    engine: Any
    family: str
    strategy: SearchStrategy[Any]
    profile: Profile
    seed: int
    on_example: Callable[[str], None] = lambda family: None
    executed: set[str] = field(default_factory=set)
    asked: int = 0
    asking_seconds: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)

    def run(self, keys: Iterable[str]) -> list[PartRun]:
        """Judge every part; a violated one is shrunk. Goes on past the budget until the witnesses are met."""
        runs = [PartRun(key=key) for key in keys]
        began = time.perf_counter()
        for number in range(self.profile.rounds):
            if number and not any(run.open and run.unmet for run in runs):
                break
            self.sweep(runs, self.seed + 7919 * number)
        share = (time.perf_counter() - began - sum(run.seconds for run in runs)) / len(runs)
        for run in runs:
            run.seconds += share
            if run.sentence:
                self.shrink(run)
        return runs

    def sweep(self, runs: list[PartRun], number: int) -> None:
        @seed(number)
        @quiet_settings(max_examples=self.profile.examples(self.family), shrink=False)
        @given(case=self.strategy)
        def each(case: Any) -> None:
            if not any(run.open for run in runs):
                return
            seen = self.ask(case)
            for run in runs:
                if run.open:
                    run.judge(case, seen, self.engine.contract)
                    run.failed_seed = number if run.sentence else None

        try:
            each()
        except Unsatisfiable:
            return  # every case was refused by the engine: no example, so the witnesses stay unmet
        except TargetError:
            raise
        except Exception as problem:
            for run in runs:
                run.error = run.error or f"{type(problem).__name__}: {problem}"

    def ask(self, case: Any) -> Any:
        """The engine's answers; a ladder that it cannot capture rejects the case (capture.legal judges that)."""
        self.on_example(self.family)
        try:
            if self.asked >= RECORDED_CASES:
                return FAMILIES[self.family].ask(self.engine, case)
            self.asked += 1
            with recording(tuple(map(str, getattr(self.engine, "roots", ()))), self.executed):
                return FAMILIES[self.family].ask(self.engine, case)
        except CaptureFailed as refused:
            self.refusals[str(refused)] = self.refusals.get(str(refused), 0) + 1
            reject()

    def shrink(self, run: PartRun) -> None:
        """Search again with the seed that failed, this time letting Hypothesis shrink."""

        @seed(run.failed_seed)
        @quiet_settings(max_examples=self.profile.examples(self.family), shrink=True)
        @given(case=self.strategy)
        def smallest(case: Any) -> None:
            seen = self.ask(case)
            sentence = run.part.check(case, seen, self.engine.contract)
            if sentence:
                run.sentence, run.case, run.seen = sentence, case, seen
                raise Violated(sentence)

        try:
            smallest()
        except Violated:
            return
        except Flaky:
            run.error = "the engine answered the same case differently when asked again"
            return
        run.error = f"not reproducible with seed {run.failed_seed}: {run.sentence}"
