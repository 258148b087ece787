"""What all reports say alike: how often each outcome came up, and what that answers about a deployment."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cpbcg_ref.checking.results import Finished, Result, Started, exit_code

QUESTIONS = {
    "hang": ("agree.*", "delay.agree"),
    "overflow": ("capacity.*", "replay.*"),
    "fail at start": ("capture.legal",),
    "starve": ("delay.bounded-*",),
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished check, as every renderer gets it."""

    started: Started
    finished: Finished
    strict: bool = False
    about_deployment: bool = False

    @property
    def results(self) -> tuple[Result, ...]:
        return self.finished.results

    @property
    def exit_code(self) -> int:
        return exit_code(self.results, strict=self.strict)

    def violated(self, level: str) -> list[Result]:
        return [result for result in self.results if result.outcome == "fail" and result.level == level]

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results)


def answers(report: Report) -> list[dict[str, Any]]:
    """One entry per question about a deployment: can this server hang, overflow, fail at start, starve?"""
    return [answer(question, ids, report.results) for question, ids in QUESTIONS.items()]


def answer(question: str, patterns: Sequence[str], results: Sequence[Result]) -> dict[str, Any]:
    """A violation answers yes; "not found" needs every id judged, anything less stays unknown and says why."""
    asked = [result for result in results if any(fnmatchcase(result.invariant, pattern) for pattern in patterns)]
    judged = [result for result in asked if result.outcome == "pass"]
    failed = [result for result in asked if result.outcome == "fail"]
    open_ones = [f"{result.invariant} ({result.outcome}: {result.message})" for result in asked if result not in judged]
    if failed:
        verdict, why = "yes", "; ".join(f"{result.invariant}: {result.message}" for result in failed)
    elif judged and any(result.outcome in ("error", "unwitnessed") for result in asked):
        verdict, why = "unknown", "not judged: " + ", ".join(open_ones)
    elif judged:
        examples = sum(result.examples for result in judged)
        verdict, why = "not found", f"{', '.join(r.invariant for r in judged)} held in {examples} examples"
        why += f"; not asked: {', '.join(open_ones)}" if open_ones else ""
    else:
        verdict, why = "unknown", "not judged: " + (", ".join(open_ones) or f"{' and '.join(patterns)} not selected")
    return {"question": f"can this server {question}?", "answer": verdict, "why": why}
