"""Two engines that answer the same cases, each in a process of its own.

Nothing of one engine reaches the other, be it a module of the same name in two working copies; and two processors work.
"""

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.single import capabilities
from cpbcg_ref.checking.workers import Worker
from cpbcg_ref.engines.contract import METHODS, Contract, missing
from cpbcg_ref.engines.targets import exact, resolve
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants.model import Part
from cpbcg_ref.invariants.pictures import printable

HANGS_AFTER_S = 60.0  # without an answer to one case
ASKS = {one.case: one.ask for one in reversed(FAMILIES.values())}  # by kind of case
Tell = Callable[[str], None]


class NoAnswer(Exception):
    """An adapter broke, or the engine's process ended or hangs."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What is known about an engine where it is not loaded. lacks: capabilities that it has not, and why."""

    target: str
    name: str
    version: str
    contract: Contract
    lacks: dict[str, str]

    def why_not(self, capability: str) -> str:
        return f"{self.name} {self.version}: {self.lacks[capability]}" if capability in self.lacks else ""

    def judges(self, part: Part) -> bool:
        """Can this engine be asked about this part of an invariant."""
        return not (any(map(self.why_not, capabilities(part))) or part.excluded(self.contract))


@dataclass(frozen=True)
class Broken:
    """What came out of an adapter and is no answer."""

    message: str


DESCRIBE = "describe"


def answering(target: str, allow_unpinned: bool, tell: Tell | None) -> Callable[[Any], Any]:
    """In the engine's process: what answers a case, or describes the engine."""
    engine: Any = None

    def answer(question: Any) -> Any:
        nonlocal engine
        try:
            if engine is None:
                engine = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
            return describe(engine, exact(target)) if question == DESCRIBE else ASKS[type(question)](engine, question)
        except CaptureFailed as problem:
            return problem.raised
        except CpbcgError as problem:
            return problem
        except (Exception, SystemExit) as problem:
            at = traceback.extract_tb(problem.__traceback__)[-1]
            return Broken(f"{type(problem).__name__}: {problem} ({Path(at.filename).name}:{at.lineno})")

    return answer


def describe(engine: Any, target: str) -> Described:
    lacks = {name: printable(reason) for name in METHODS if (reason := missing(engine, name))}
    return Described(
        target=target,
        name=printable(engine.name),
        version=printable(engine.version),
        contract=engine.contract,
        lacks=lacks,
    )


class Side:
    """One of the engines. Its process is replaced where it ended or hangs."""

    def __init__(self, target: str, *, allow_unpinned: bool = False, tell: Tell | None = None) -> None:
        self.target, self.args = target, (target, allow_unpinned, tell)
        self.worker = Worker(answering, self.args)

    def ask(self, question: Any) -> None:
        self.worker.take(question, seconds=math.inf)

    def answer(self, *, within_s: float | None) -> Any:
        """What the engine answers to the question before; a `Broken` for an adapter that breaks."""
        if not self.worker.pipe.poll(within_s):
            self.replace()
            return Broken(f"the engine did not come back from one case within {within_s:g} s")
        ended = self.worker.ended()
        if ended.problem and not self.worker.process.is_alive():
            self.replace()
        return Broken(ended.problem) if ended.problem else ended.answer

    def replace(self) -> None:
        self.worker.kill()
        self.worker = Worker(answering, self.args)


class Pair:
    """Both engines, asked at the same time."""

    def __init__(self, targets: Sequence[str], **how: Any) -> None:
        self.sides = [Side(target, **how) for target in targets]

    def ask(self, question: Any, *, within_s: float | None = HANGS_AFTER_S) -> tuple[Any, Any]:
        """What they answer. Raises NoAnswer where one of them has none, and the CpbcgError of a target."""
        for side in self.sides:
            side.ask(question)
        answers = [side.answer(within_s=within_s) for side in self.sides]
        for side, answer in zip(self.sides, answers, strict=True):
            if isinstance(answer, Broken):
                raise NoAnswer(f"{side.target}: {answer.message}")
            if isinstance(answer, CpbcgError):
                raise answer
        return answers[0], answers[1]

    def describe(self) -> tuple[Described, Described]:
        """However long it takes to fetch them."""
        return self.ask(DESCRIBE, within_s=None)
