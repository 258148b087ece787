"""Ask an engine one family of cases and judge all invariants of that family on the same answers.

Asking costs more than judging, so one sweep serves every invariant of the family. An invariant that fails in the sweep
is then searched alone, with the same seed, and shrunk.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from hypothesis import given, reject, seed
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from cpbcg_ref.asking import CaptureFailed
from cpbcg_ref.checking.answering import Hangs, ask, raised_at
from cpbcg_ref.checking.executed import recording
from cpbcg_ref.checking.profiles import quiet_settings
from cpbcg_ref.checking.size import order
from cpbcg_ref.checking.smaller import leaner, smaller
from cpbcg_ref.errors import TargetError
from cpbcg_ref.invariants.model import Part

RECORDED_CASES = 5
OTHER_SEED = 7907  # beside the seeds of the rounds


class NothingLeft(Exception):
    """No part wants another case; raised inside Hypothesis so that it makes no more."""


class Violation(Exception):
    """A case, the answers and the sentence about them; raised inside Hypothesis so that it shrinks."""

    def __init__(self, sentence: str, case: Any, seen: Any) -> None:
        super().__init__(sentence)
        self.case, self.seen = case, seen


@dataclass(kw_only=True)
class PartRun:
    """How one part of an invariant fares.

    skipped: why it cannot be asked. demanded: witnesses that this engine can meet. known: it is expected to fail, so
    its violation is not shrunk. rounds: in how many it took part. searched: seconds in which its examples were made,
    asked, and judged by all who wanted them. seconds: its equal share of those, and its own shrinking. seed: which
    found the violation. stopped: why it saw no more cases.
    """

    part: Part
    skipped: str = ""
    demanded: Sequence[str] = ()
    known: bool = False
    examples: int = 0
    rounds: int = 0
    searched: float = 0.0
    seconds: float = 0.0
    error: str = ""
    violation: Violation | None = None
    seed: int = 0
    stopped: str = ""
    witnesses: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> bool:
        return not self.violation and not self.error

    @property
    def unmet(self) -> list[str]:
        return [name for name in self.demanded if not self.witnesses[name]]

    @property
    def wants_more(self) -> bool:
        """In its first round all of it, in further rounds cases until its own witnesses are met."""
        return self.open and (self.rounds < 2 or bool(self.unmet))

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

    also: settings of the search over the profile's, such as a database. pinned: every case has the server or the
    delayer of a deployment.
    """

    engine: Any
    family: str
    strategy: SearchStrategy[Any]
    profile: str
    executed: set[str]
    asked: int = 0
    also: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False

    def judge(self, runs: Sequence[PartRun], *, first_seed: int, rounds: int) -> None:
        """Judge every part and shrink what is violated.

        A part goes into another round only for witnesses that it has not met itself: whatever else is asked, it sees
        the same cases, so that asking it alone reproduces its verdict.
        """
        for number in range(rounds):
            if wanting := [run for run in runs if number == 0 or (run.open and run.unmet)]:
                self.sweep(wanting, first_seed + 7919 * number)
        for run in runs:
            run.stopped = self.why_stopped(run, rounds)
            if run.violation and not run.known:
                began = time.perf_counter()
                self.shrink(run)
                run.seconds += time.perf_counter() - began

    def why_stopped(self, run: PartRun, most_rounds: int) -> str:
        budget = quiet_settings(self.profile, self.family, shrink=False, **self.also).max_examples
        if not run.open:
            return f"{'first failure' if run.violation else 'error'} at example {run.examples}"
        if run.rounds > 1:
            met = f"witnesses met in round {run.rounds} of at most {most_rounds}"
            return f"cap of {most_rounds} rounds: never met {'; '.join(run.unmet)}" if run.unmet else met
        of_profile = f"{budget} examples of the profile"
        return of_profile if run.examples >= budget else f"no new case after {run.examples} of {of_profile}"

    def sweep(self, runs: Sequence[PartRun], number: int) -> None:
        since = time.perf_counter()

        def each(case: Any) -> None:
            nonlocal since
            wanting = [run for run in runs if run.wants_more]
            seen = self.ask(case) if wanting else None
            for run in wanting:
                run.judge(case, seen, self.engine.contract)
                run.seed = number
            took, since = time.perf_counter() - since, time.perf_counter()
            for run in wanting:
                run.searched += took
                run.seconds += took / len(wanting)
            if not any(run.wants_more for run in runs):
                raise NothingLeft

        for run in runs:
            run.rounds += 1
        try:
            self.search(each, number)
        except (NothingLeft, Unsatisfiable):
            return  # Unsatisfiable: every case was refused by the engine: no example, so the witnesses stay unmet
        except TargetError:
            raise
        except (Exception, SystemExit, Hangs) as problem:
            at = raised_at(problem)
            for run in runs:
                if run.wants_more:  # the others had seen all of their cases
                    run.error = f"{type(problem).__name__}: {problem} ({at.filename}:{at.lineno})"

    def shrink(self, run: PartRun) -> None:
        """Search again with the seed that failed, this time letting Hypothesis shrink; then try smaller cases."""

        def smallest(case: Any) -> None:
            if found := self.fails(run, case):
                raise found

        run.error = f"the engine answered the same cases differently when asked again: {run.violation}"
        try:
            self.search(smallest, run.seed, shrink=True)
        except Violation as found:
            run.violation, run.error = found, ""
            self.trim(run)
            self.look_again(run, smallest)
        except Hangs:
            run.error = ""  # what it found stands, unshrunk
        except Flaky:
            if run.part.once:
                run.error = ""

    def look_again(self, run: PartRun, smallest: Callable[[Any], None]) -> None:
        """Shrinking can end beside the smallest case: another seed ends elsewhere, and the smaller of both is kept."""
        best = run.violation
        try:
            self.search(smallest, run.seed + OTHER_SEED, shrink=True)
        except Violation as found:
            run.violation = found
            self.trim(run)
        except (Flaky, Unsatisfiable, Hangs):
            return
        run.violation = min(filter(None, (best, run.violation)), key=lambda one: order(one.case))

    def trim(self, run: PartRun) -> None:
        """Leave out what the violation does without, until nothing can be left out; `run` has the best so far."""
        better = run.violation
        with suppress(Hangs):
            while better:
                run.violation = better
                better = next(filter(None, map(partial(self.fails, run), self.simpler(better.case))), None)

    def fails(self, run: PartRun, case: Any) -> Violation | None:
        """A ladder that is not captured, or a case that breaks the adapter, shows nothing about the engine."""
        with suppress(Exception):
            seen = self.answers(case)
            if sentence := run.part.check(case, seen, self.engine.contract):
                return Violation(sentence, case, seen)
        return None

    def simpler(self, case: Any) -> Iterable[Any]:
        """What is tried instead of a case; the server and the delayer of a deployment stay as they are."""
        return chain(leaner(case), () if self.pinned else smaller(case, self.engine.contract))

    def search(self, judge: Callable[[Any], None], number: int, *, shrink: bool = False) -> None:
        how = quiet_settings(self.profile, self.family, shrink=shrink, **self.also)
        how(seed(number)(given(case=self.strategy)(judge)))()  # settings last: a seed takes a database away

    def ask(self, case: Any) -> Any:
        """The engine's answers; a ladder that it cannot capture rejects the case (capture.legal judges that)."""
        try:
            return self.answers(case)
        except CaptureFailed:
            reject()

    def answers(self, case: Any) -> Any:
        self.asked += 1
        with recording(self.engine, self.executed) if self.asked <= RECORDED_CASES else nullcontext():
            return ask(self.engine, self.family, case)
