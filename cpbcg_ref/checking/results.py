"""What a check found: one `Result` per invariant, and the events that lead there."""

from dataclasses import dataclass, field
from typing import Any

# Worst first: what a row of several parts shows.
OUTCOMES = ("fail", "error", "unwitnessed", "pass", "skip")


@dataclass(frozen=True, kw_only=True)
class Counterexample:
    """The smallest failing case: as data, as the Python that rebuilds it, and the per-rank picture."""

    case: dict[str, Any]
    python: str
    picture: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """Verdict on one invariant. seconds: its own checks plus its share of generating and asking."""

    invariant: str
    level: str
    outcome: str
    examples: int = 0
    seconds: float = 0.0
    message: str = ""
    counterexample: Counterexample | None = None
    reproduce: str = ""
    witnesses: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.outcome in OUTCOMES, self.outcome


@dataclass(frozen=True, kw_only=True)
class Started:
    target: str
    engine: str
    version: str
    invariants: tuple[str, ...]
    profile: str
    seed: int
    budget: int  # examples, all families


@dataclass(frozen=True, kw_only=True)
class Progress:
    family: str
    examples: int  # since the last event


@dataclass(frozen=True, kw_only=True)
class Finished:
    results: tuple[Result, ...]  # one per invariant, in the registry's order
    executed: tuple[str, ...]
    seconds: float


Event = Started | Progress | Result | Finished


def exit_code(results: tuple[Result, ...], *, strict: bool = False) -> int:
    """First that applies: 1 a MUST fails (with strict a SHOULD too), 2 an error, 3 a MUST is unwitnessed, 0."""
    judged = [r for r in results if strict or r.level == "MUST"]
    if any(r.outcome == "fail" for r in judged):
        return 1
    if any(r.outcome == "error" for r in results):
        return 2
    return 3 if any(r.outcome == "unwitnessed" and r.level == "MUST" for r in results) else 0
