"""Ask an engine one family of cases and judge all invariants of that family on the same answers.

Asking costs more than judging, so one sweep serves every invariant of the family. An invariant that fails in the sweep
is then searched alone, with the same seed, and shrunk.
"""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, reject, seed
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.executed import recording
from cpbcg_ref.checking.profiles import quiet_settings
from cpbcg_ref.errors import TargetError
from cpbcg_ref.invariants.model import Part

RECORDED_CASES = 5


class Violation(Exception):
    """A case, the answers and the sentence about them; raised inside Hypothesis so that it shrinks."""

    def __init__(self, sentence: str, case: Any, seen: Any) -> None:
        super().__init__(sentence)
        self.case, self.seen = case, seen


@dataclass(kw_only=True)
class PartRun:
    """How one part of an invariant fares.

    skipped: why it cannot be asked. demanded: witnesses that this engine can meet. seed: which found the violation.
    """

    part: Part
    skipped: str = ""
    demanded: Sequence[str] = ()
    examples: int = 0
    seconds: float = 0.0
    error: str = ""
    violation: Violation | None = None
    seed: int = 0
    witnesses: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> bool:
        return not self.violation and not self.error

    @property
    def unmet(self) -> list[str]:
        return [name for name in self.demanded if not self.witnesses[name]]

    def judge(self, case: Any, seen: Any, contract: Any) -> None:
        """Count the witnesses and keep the first violation; a checker that raises is an error, never a verdict."""
        self.examples += 1
        try:
            for name, met in self.part.witnesses.items():
                self.witnesses[name] += bool(met(case, seen))
            if sentence := self.part.check(case, seen, contract):
                self.violation = Violation(sentence, case, seen)
        except Exception as problem:
            self.error = f"the checker raised {type(problem).__name__}: {problem} on {case!r}"


@dataclass(kw_only=True)
class FamilyRun:
    """One family of cases on one engine; the functions that ran in the first cases end up in `executed`.

    also: settings of the search over the profile's, such as a database.
    """

    engine: Any
    family: str
    strategy: SearchStrategy[Any]
    profile: str
    executed: set[str]
    asked: int = 0
    also: dict[str, Any] = field(default_factory=dict)

    def judge(self, runs: Sequence[PartRun], *, first_seed: int, rounds: int) -> None:
        """Judge every part and shrink what is violated.

        A part goes into another round only for witnesses that it has not met itself: whatever else is asked, it sees
        the same cases, so that asking it alone reproduces its verdict.
        """
        began = time.perf_counter()
        for number in range(rounds):
            if wanting := [run for run in runs if number == 0 or (run.open and run.unmet)]:
                self.sweep(wanting, first_seed + 7919 * number)
        for run in [run for run in runs if run.violation]:
            self.shrink(run)
        for run in runs:
            run.seconds = (time.perf_counter() - began) / len(runs)

    def sweep(self, runs: Sequence[PartRun], number: int) -> None:
        def each(case: Any) -> None:
            still_open = [run for run in runs if run.open]
            seen = self.ask(case) if still_open else None
            for run in still_open:
                run.judge(case, seen, self.engine.contract)
                run.seed = number

        try:
            self.search(each, number)
        except Unsatisfiable:
            return  # every case was refused by the engine: no example, so the witnesses stay unmet
        except TargetError:
            raise
        except (Exception, SystemExit) as problem:
            at = traceback.extract_tb(problem.__traceback__)[-1]
            for run in runs:
                run.error = run.error or f"{type(problem).__name__}: {problem} ({at.filename}:{at.lineno})"

    def shrink(self, run: PartRun) -> None:
        """Search again with the seed that failed, this time letting Hypothesis shrink."""

        def smallest(case: Any) -> None:
            seen = self.ask(case)
            if sentence := run.part.check(case, seen, self.engine.contract):
                raise Violation(sentence, case, seen)

        run.error = f"the engine answered the same cases differently when asked again: {run.violation}"
        try:
            self.search(smallest, run.seed, shrink=True)
        except Violation as found:
            run.violation, run.error = found, ""
        except Flaky:
            return

    def search(self, judge: Callable[[Any], None], number: int, *, shrink: bool = False) -> None:
        how = quiet_settings(self.profile, self.family, shrink=shrink, **self.also)
        seed(number)(how(given(case=self.strategy)(judge)))()

    def ask(self, case: Any) -> Any:
        """The engine's answers; a ladder that it cannot capture rejects the case (capture.legal judges that)."""
        self.asked += 1
        with recording(self.engine, self.executed) if self.asked <= RECORDED_CASES else nullcontext():
            try:
                return FAMILIES[self.family].ask(self.engine, case)
            except CaptureFailed:
                reject()
