"""What a check found: one `Result` per invariant, all of them in a `Report`."""

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

    @property
    def example(self) -> str:
        """The line that pins it on a test with `@given(case=cases_for(...))`."""
        return f"@example(case={self.python})"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Verdict on one invariant.

    searched: seconds in which its examples were made, asked, and judged by every invariant that wanted them; seconds:
    its equal share of those, and its own shrinking. stopped: why it saw no more cases. witnesses: in how many examples
    each interesting case came up; shares: of how many of its part's examples that is. known: it fails, and its owner
    knows, with the reason and the link. replay: the command that asks a saved failure again.
    """

    invariant: str
    level: str
    outcome: str
    examples: int = 0
    seconds: float = 0.0
    message: str = ""
    counterexample: Counterexample | None = None
    reproduce: str = ""
    replay: str = ""
    witnesses: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    stopped: str = ""
    searched: float = 0.0
    known: bool = False
    reason: str = ""
    link: str = ""

    @property
    def examples_per_second(self) -> float:
        """How fast the search for it went: not what its own checker takes, and without shrinking."""
        return round(self.examples / self.searched, 1) if self.searched else 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished check, as every renderer gets it: one result per invariant, in the registry's order.

    executed: "file:qualified.name" of the engine's functions that ran.
    """

    target: str
    engine: str
    version: str
    profile: str
    seed: int
    results: tuple[Result, ...]
    executed: tuple[str, ...]
    seconds: float
    about_deployment: bool = False
    strict: bool = False

    def of(self, outcome: str, level: str = "") -> list[Result]:
        return [result for result in self.results if result.outcome == outcome and level in ("", result.level)]

    @property
    def exit_code(self) -> int:
        """First that applies: 1 a MUST fails (with strict a SHOULD too) and that is not known, 2 an error, 3 a MUST is
        unwitnessed, 0. A pinned deployment may exclude an interesting case: that is said and costs no exit code."""
        if not all(one.known for one in self.of("fail", "" if self.strict else "MUST")):
            return 1
        if self.of("error"):
            return 2
        return 3 if self.of("unwitnessed", "MUST") and not self.about_deployment else 0
