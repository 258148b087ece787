"""What a theorem is, and how it is proved: every obligation holds, and the control, which is slightly wrong, does not.

Proved means that z3 finds no integers that satisfy what is given and break what is claimed, although some satisfy what
is given. An answer other than "there are some" or "there are none" proves nothing.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import z3

TIMEOUT_MS = 60_000  # per obligation


@dataclass(frozen=True)
class Obligation:
    """Whatever integers satisfy `given` satisfy `claim`. `says`: which step of the proof it is."""

    given: tuple[Any, ...]
    claim: Any
    says: str = ""

    def broken_by(self) -> dict[str, int] | None:
        """Integers that satisfy what is given and break the claim, None if there are none.

        Raises Undecided if z3 gives up, or if no integers satisfy what is given: then nearly anything could be claimed.
        """
        if z3.is_true(z3.simplify(self.claim)):
            return None
        solver = z3.SimpleSolver()
        solver.set("timeout", TIMEOUT_MS)
        solver.add(*self.given)
        if solver.check() == z3.unsat:
            raise Undecided(f"{self.says or 'one step'}: nothing satisfies what is given")
        solver.add(z3.Not(self.claim))
        answer = solver.check()
        if answer == z3.unknown:
            raise Undecided(f"{self.says or 'one step'}: {solver.reason_unknown()}")
        if answer == z3.unsat:
            return None
        model = solver.model()
        values = {str(name): model[name] for name in model}
        numbers = {name: value.as_long() for name, value in values.items() if z3.is_int_value(value)}
        return numbers | {name: int(z3.is_true(value)) for name, value in values.items() if z3.is_bool(value)}


class Undecided(Exception):
    """z3 could neither prove nor refute."""


Obligations = Callable[[], Iterable[Obligation]]


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """statement: in words. claim: what must hold for all integers. wrong: in words, slightly more than is true.
    control: its obligations, one of which must break. replay: asks the code under proof about the integers that broke
    it: the sentence that shows the wrong statement wrong there, or "" if the code does not show it. needs: the
    capability that an engine must have, "" for theorems about the library. confirm: asks the code about integers that
    break the theorem itself: the sentence that shows it, or "" if the code does not, so that nothing was refuted; a
    proof by closed forms has nothing to ask: where it breaks, the proof is wrong and not the code.
    """

    name: str
    statement: str
    claim: Obligations
    wrong: str
    control: Obligations
    replay: Callable[[dict[str, int]], str]
    source: str = ""
    needs: str = ""
    confirm: Callable[[dict[str, int]], str] = lambda model: ""


@dataclass(frozen=True, kw_only=True)
class Proved:
    """What came out. broken: integers against the theorem itself, if it does not hold; refuted: what the code says
    about them. model: integers against the control; shown: what the code says about them. undecided: why there is no
    proof and no refutation. skipped: why the target was not asked."""

    theorem: Theorem
    proved: bool = False
    refuted: str = ""
    obligations: int = 0
    broken: dict[str, int] | None = None
    model: dict[str, int] | None = None
    shown: str = ""
    undecided: str = ""
    skipped: str = ""
    seconds: float = 0.0

    @property
    def control_refuted(self) -> bool:
        return bool(self.shown)


def first_broken(obligations: Iterable[Obligation]) -> tuple[int, dict[str, int] | None]:
    """How many obligations were looked at, and the integers that break the last of them, None if all hold."""
    count = 0
    for obligation in obligations:
        count += 1
        if (found := obligation.broken_by()) is not None:
            return count, found
    return count, None


def prove(theorem: Theorem) -> Proved:
    """Prove the theorem and refute its control. A theorem without obligations is not proved."""
    began = time.perf_counter()
    told: dict[str, Any] = {}
    try:
        told["obligations"], told["broken"] = first_broken(theorem.claim())
        told["proved"] = told["obligations"] > 0 and told["broken"] is None
        if told["broken"] is not None and not (sentence := theorem.confirm(told["broken"])):
            raise Undecided(f"the code does not show that {told['broken']} break it")
        told["refuted"] = "" if told["broken"] is None else sentence
        _, told["model"] = first_broken(theorem.control())
        told["shown"] = "" if told["model"] is None else theorem.replay(told["model"])
    except Exception as problem:  # of the code under proof too: it is executed on numbers that it was not made for
        told |= {"proved": False, "undecided": ""}
        told["undecided"] = f"{type(problem).__name__}: {problem}".split("\n")[0]
    return Proved(theorem=theorem, seconds=round(time.perf_counter() - began, 3), **told)
