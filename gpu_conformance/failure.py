"""Which rank failed and how, judged from what is left of each."""

import signal
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_conformance.status import Doing

# The first that fits is to blame: a rank that ended by itself, then one that stands still, last those that merely lost
# another. A process that aborts in C++ may have been sent what it does not understand by one that raised.
OWN_FAULT = ("killed", "exited", "raised", "aborted", "stopped")
LOST = ("finished early", "disconnected", "looping", "hanging", "silent")  # silent: on another machine, under torchrun
KINDS = (*OWN_FAULT, *LOST, "parted ways")  # that in lockstep alone
STATES = {"T": "stopped", "R": "looping", "gone": "exited", "elsewhere": "silent"}


@dataclass(kw_only=True, eq=False)
class Failure(Exception):
    """A rank failed, not the engine. stacks: where the living were ("": no answer) and where others raised."""

    rank: int
    kind: str
    last_operation: str
    detail: str
    stacks: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class Remains:
    """What is left of a rank. exit_code: None if it lives; state: then the letter of its process. told: the result, or
    what it raised."""

    rank: int
    doing: Doing
    exit_code: int | None = None
    state: str = ""
    ticks: int = 0  # of processor time: who loops has used most, who waits may be seen running too
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.exit_code is None:
            return STATES.get(self.state, "hanging")
        if self.exit_code < 0:
            return "aborted" if self.exit_code == -signal.SIGABRT else "killed"
        if "raised" in self.told:
            return "disconnected" if self.told["in_collective"] else "raised"
        return "finished early" if "result" in self.told else "exited"

    @property
    def ended_well(self) -> bool:
        return self.exit_code == 0 and "result" in self.told

    @property
    def detail(self) -> str:
        if self.exit_code is None:
            return "torchrun tells its exit code" if self.state == "gone" else "no progress"
        if self.exit_code < 0:
            out_of_memory = ", as when memory runs out" if self.exit_code == -signal.SIGKILL else ""
            return f"signal {-self.exit_code}, {signal.Signals(-self.exit_code).name}{out_of_memory}"
        return str(
            self.told.get("raised", f"exit code {self.exit_code}, {'with' if self.told else 'without'} a result")
        )

    @property
    def when(self) -> float:
        """It raised, or began its last operation."""
        return float(self.told.get("when", self.doing.since))


def blamed(group: Sequence[Remains], stacks: dict[int, str]) -> Failure:
    """After a death."""
    return named(min(group, key=lambda one: (KINDS.index(one.kind), one.when)), group, stacks)


def stuck(group: Sequence[Remains], stacks: dict[int, str]) -> Failure:
    """Nobody begins anything: the others wait for a stopped rank, or for the one that has begun least."""
    return named(min(group, key=lambda one: (one.kind != "stopped", one.doing.operations, -one.ticks)), group, stacks)


def named(one: Remains, group: Iterable[Remains], stacks: dict[int, str]) -> Failure:
    """Others that failed by themselves are told too."""
    too = [f"rank {other.rank} {other.kind} too" for other in group if other is not one and other.kind in OWN_FAULT]
    traces = {other.rank: other.told["trace"] for other in group if "trace" in other.told}
    return Failure(
        rank=one.rank,
        kind=one.kind,
        last_operation=one.doing.last or "starting",
        detail="; ".join([one.detail, *too]),
        stacks=stacks | traces,
    )


def raised(rank: int, operation: str, problem: BaseException) -> Failure:
    """A rank that raises where nothing else is known of it."""
    detail, stacks = f"{type(problem).__name__}: {problem}", {rank: trace(problem)}
    return Failure(rank=rank, kind="raised", last_operation=operation, detail=detail, stacks=stacks)


def trace(problem: BaseException) -> str:
    """The innermost call first, as faulthandler writes it."""
    frames = reversed(traceback.extract_tb(problem.__traceback__))
    lines = [f'  File "{frame.filename}", line {frame.lineno} in {frame.name}' for frame in frames]
    return "\n".join([f"{type(problem).__name__} (most recent call first):", *lines])
