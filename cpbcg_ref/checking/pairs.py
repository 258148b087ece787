"""The search for the smallest case on which two engines decide differently, function by function.

A function is searched as a part of an invariant is, by the same rounds, seeds and shrinking; what is looked for is a
difference instead of a violation. Whether a difference matters is the reader's to decide: beside the smallest case
stand the invariants that each engine violates on it.
"""

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from hypothesis import reject

from cpbcg_ref.answers import Raised
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import LastPassCase, PassesCase, SelectCase, SelectPairCase
from cpbcg_ref.checking.common import common, nothing_common
from cpbcg_ref.checking.differences import Compared, Difference, labels
from cpbcg_ref.checking.family import FamilyRun, PartRun, Violation
from cpbcg_ref.checking.functions import FUNCTIONS, Function, Place, differing
from cpbcg_ref.checking.rounds import TimeUp
from cpbcg_ref.checking.run import ROUNDS
from cpbcg_ref.checking.sides import HANGS_AFTER_S, Described, NoAnswer, Pair
from cpbcg_ref.checking.size import as_python, order
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import MUST, Part, Witness, not_excluded
from cpbcg_ref.invariants.pictures import beside, printable, shown
from cpbcg_ref.strategies import cases_for

GRACE_S = 3.0  # for the case that is asked when the time is up
NARROWED = {PassesCase: "passes", SelectCase: "select"}  # the family that asks what is left of a pair


@dataclass
class Both:
    """What two engines answered to one case. met: the witnesses that were looked at."""

    left: Any
    right: Any
    met: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Common:
    """What two engines have in common for the search: it asks no engine by itself."""

    contract: Contract


@dataclass(kw_only=True)
class PairRun(FamilyRun):
    """A family of cases put to two engines, until a moment of time.monotonic().

    broke: what came out of an adapter last. unshrunk: functions of which the smallest case is not known.
    """

    pair: Pair
    until: float
    broke: str = ""
    best: Violation | None = None
    unshrunk: list[PartRun] = field(default_factory=list)

    def ask(self, case: Any) -> Both:
        """A ladder that neither engine can capture rejects the case."""
        try:
            both = self.answers(case)
        except NoAnswer as problem:
            self.broke = str(problem)
            raise
        if isinstance(both.left, Raised) and isinstance(both.right, Raised):
            reject()
        return both

    def answers(self, case: Any) -> Both:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeUp
        return Both(*self.pair.ask(case, within_s=min(HANGS_AFTER_S, left + GRACE_S)))

    def fails(self, run: PartRun, case: Any) -> Violation | None:
        """Keeps the best, for when the time is up."""
        found = super().fails(run, case)
        if found and (self.best is None or order(found.case) < order(self.best.case)):
            self.best = found
        return found

    def shrink(self, run: PartRun) -> None:
        self.best = run.violation
        try:
            super().shrink(run)
        except TimeUp:
            run.violation, run.error = self.best, ""
            self.unshrunk.append(run)

    def simpler(self, case: Any) -> Iterable[Any]:
        """Two runs or two calls that are one question each come first."""
        return chain(halves(case), super().simpler(case))

    def why_stopped(self, run: PartRun, most_rounds: int) -> str:
        return super().why_stopped(run, most_rounds).replace("first failure", "first difference")


def halves(case: Any) -> tuple[Any, ...]:
    if isinstance(case, LastPassCase):
        ends = (case.last, case.other_last)
        return tuple(PassesCase(config=case.config, passes=(*case.history, last)) for last in ends)
    return (case.base, case.more) if isinstance(case, SelectPairCase) else ()


@dataclass(frozen=True, kw_only=True)
class Search:
    """Compares functions of one family on two engines."""

    pair: Pair
    engines: tuple[Described, Described]
    family: str
    profile: str = "ci"
    seed: int = 0
    until: float = math.inf

    def compare(self, ids: Sequence[str]) -> list[Compared]:
        contract = common(*(engine.contract for engine in self.engines))
        lacking = {name: self.why_not(FUNCTIONS[name]) or nothing_common(self.family, contract) for name in ids}
        skipped = [Compared(function=name, outcome="skip", message=why) for name, why in lacking.items() if why]
        parts = {name: self.part(FUNCTIONS[name]) for name, why in lacking.items() if not why}
        runs = {name: PartRun(part=part, demanded=self.demanded(contract)) for name, part in parts.items()}
        if not runs:
            return skipped
        how: dict[str, Any] = {"family": self.family, "profile": self.profile, "executed": set()}
        how |= {"engine": Common(contract), "strategy": cases_for(self.family, contract)}
        search = PairRun(**how, pair=self.pair, until=self.until)
        with suppress(TimeUp):
            search.judge(list(runs.values()), first_seed=self.seed, rounds=ROUNDS)
        return [*skipped, *(self.compared(name, run, search) for name, run in runs.items())]

    def why_not(self, function: Function) -> str:
        """What the first engine lacks that lacks something."""
        needs = (FAMILIES[self.family].capability, *function.needs)
        return next(filter(None, (engine.why_not(need) for need in needs for engine in self.engines)), "")

    def part(self, function: Function) -> Part:
        def check(case: Any, seen: Both, contract: Any) -> str | None:
            return sentence(differing(function, seen.left, seen.right))

        witnesses = {name: once(name, met) for name, met in self.witnesses().items()}
        return Part(family=self.family, check=check, needs=(), excluded=not_excluded, witnesses=witnesses)

    def judging(self) -> list[Part]:
        """The parts of invariants that ask this family and that one of the engines can be asked."""
        parts = (part for one in REGISTRY.values() for part in one.parts if part.family == self.family)
        return [part for part in parts if any(engine.judges(part) for engine in self.engines)]

    def witnesses(self) -> dict[str, Witness]:
        return {name: met for part in self.judging() for name, met in part.witnesses.items()}

    def demanded(self, contract: Contract) -> list[str]:
        return list(dict.fromkeys(name for part in self.judging() for name in part.demanded(contract)))

    def compared(self, name: str, run: PartRun, search: PairRun) -> Compared:
        out_of_time = not run.stopped or run in search.unshrunk
        stopped = run.stopped or f"the time was up after {run.examples} examples"
        told: dict[str, Any] = {"function": name, "examples": run.examples, "seconds": round(run.seconds, 4)}
        told |= {"stopped": stopped, "witnesses": dict(run.witnesses), "unmet": tuple(run.unmet)}
        if run.error or (search.broke and not run.stopped):
            return Compared(outcome="error", message=printable(search.broke or run.error), **told)
        if run.violation:
            difference = self.difference(FUNCTIONS[name], run.violation, smallest=not out_of_time)
            return Compared(outcome="different", message=str(run.violation), difference=difference, **told)
        if not run.examples:
            why = "the time was up" if out_of_time else "every case was refused by both engines"
            return Compared(outcome="skip", message=f"no case was asked: {why}", **told)
        return Compared(outcome="same", **told)

    def difference(self, function: Function, found: Violation, *, smallest: bool) -> Difference:
        case, seen = found.case, (found.seen.left, found.seen.right)
        places = tuple((one.place, shown(one.left), shown(one.right)) for one in differing(function, *seen))
        told: dict[str, Any] = {"case": {"kind": type(case).__name__} | asdict(case), "python": as_python(case)}
        violated = [violates(engine, self.family, case, own) for engine, own in zip(self.engines, seen, strict=True)]
        told |= {"places": places, "violates": (violated[0], violated[1]), "smallest": smallest}
        contracts = [engine.contract for engine in self.engines]
        return Difference(picture=drawn(case, seen, contracts, labels(*self.engines)), **told)


def drawn(case: Any, seen: Sequence[Any], contracts: Sequence[Contract], names: Sequence[str]) -> str:
    """What both engines did; of one that could not start its server, why."""
    raised = [
        f"{name}: {printable(str(own))}" for name, own in zip(names, seen, strict=True) if isinstance(own, Raised)
    ]
    return "\n".join(raised) or beside(case, seen, contracts, names)


def once(name: str, met: Witness) -> Witness:
    """Did it come up on either engine; looked at once for all functions of the family."""

    def witness(case: Any, both: Both) -> bool:
        if name not in both.met:
            both.met[name] = came_up(met, case, both.left) or came_up(met, case, both.right)
        return both.met[name]

    return witness


def came_up(met: Witness, case: Any, seen: Any) -> bool:
    with suppress(Exception):  # witnesses are of engines that can be asked
        return bool(met(case, seen))
    return False


def sentence(places: Sequence[Place]) -> str | None:
    if not places:
        return None
    first, more = places[0], len(places) - 1
    told = f"{first.place}: {shown(first.left)} against {shown(first.right)}"
    return told + (f", and {more} more place{'s' * (more > 1)}" if more else "")


def violates(engine: Described, family: str, case: Any, seen: Any) -> tuple[str, ...]:
    """The invariants that an engine violates on this case; of a SHOULD it is said that it is one."""
    asked = family if FAMILIES[family].case is type(case) else NARROWED[type(case)]
    found = []
    for name, one in REGISTRY.items():
        parts = [part for part in one.parts if part.family == asked and engine.judges(part)]
        if any(fails(part, case, seen, engine.contract) for part in parts):
            found.append(name if one.level == MUST else f"{name} ({one.level})")
    return tuple(found)


def fails(part: Part, case: Any, seen: Any, contract: Contract) -> bool:
    with suppress(Exception):  # an answer that cannot be judged is shown all the same
        return part.check(case, seen, contract) is not None
    return False
