"""How two engines compare: one `Compared` per function, all of them in a `Comparison`."""

from dataclasses import dataclass, field
from typing import Any

from cpbcg_ref.checking.sides import Described

OUTCOMES = ("different", "error", "same", "skip")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The smallest case: as data, as Python, where the answers differ and what they are, and the picture of both.

    violates: per engine the invariants that it violates on this case. smallest: False where the time was up first.
    """

    case: dict[str, Any]
    python: str
    places: tuple[tuple[str, str, str], ...]
    picture: str
    violates: tuple[tuple[str, ...], tuple[str, ...]]
    smallest: bool

    @property
    def example(self) -> str:
        return f"@example(case={self.python})"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How two engines compare in one function. message: what differs first, or why it is not known whether any does.

    examples: cases that both were asked. witnesses: in how many of them each interesting case came up. unmet: those
    that should have come up and did not. stopped: why no more cases were asked.
    """

    function: str
    outcome: str  # of OUTCOMES
    examples: int = 0
    seconds: float = 0.0
    message: str = ""
    stopped: str = ""
    witnesses: dict[str, int] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    difference: Difference | None = None

    def __post_init__(self) -> None:
        assert self.outcome in OUTCOMES, self.outcome
        assert (self.difference is not None) == (self.outcome == "different"), self


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A finished comparison, as every renderer gets it: one result per function, those of a family together."""

    engines: tuple[Described, Described]
    profile: str
    seed: int
    results: tuple[Compared, ...]
    seconds: float

    def of(self, outcome: str) -> list[Compared]:
        return [one for one in self.results if one.outcome == outcome]

    @property
    def exit_code(self) -> int:
        """First that applies: 1 a function differs, 2 an error or nothing was compared, 0."""
        if self.of("different"):
            return 1
        return 2 if self.of("error") or not self.of("same") else 0


def labels(left: Described, right: Described) -> tuple[str, str]:
    """Short names for the columns of two engines: what tells them apart, A and B if nothing short does."""
    for names in ((left.name, right.name), (left.version, right.version), (left.target, right.target)):
        if names[0] != names[1] and max(map(len, names)) <= 20:
            return names
    return "A", "B"
