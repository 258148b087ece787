"""The report for programs: one document per check, described by schema.json beside this file."""

import dataclasses
import json
from fnmatch import fnmatchcase
from typing import Any

from cpbcg_ref.checking.results import OUTCOMES, Report, Result

QUESTIONS: dict[str, tuple[str, ...]] = {"hang": ("agree.*", "delay.agree"), "overflow": ("capacity.*", "replay.*")}
QUESTIONS |= {"fail at start": ("capture.legal",), "starve": ("delay.bounded-*",)}
ANSWERS = {"fail": "yes", "pass": "not found", "unwitnessed": "not found"}


def as_json(value: Any) -> str:
    """Indented; ASCII only, so that it survives any terminal and any file encoding."""
    return json.dumps(value, indent=2) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The finished check as plain data; `deployment` is there only when a deployment was checked."""
    counts = {outcome: len(report.of(outcome)) for outcome in OUTCOMES}
    must, should = ([one.invariant for one in report.of("fail", level)] for level in ("MUST", "SHOULD"))
    run = {"seconds": round(report.seconds, 3), "profile": report.profile, "seed": report.seed}
    summary = counts | {"must_violated": must, "should_violated": should, "exit_code": report.exit_code} | run
    summary["known"] = [one.invariant for one in report.results if one.known]
    target, results = {"engine": report.engine, "version": report.version}, list(map(row, report.results))
    told = {"target": target, "results": results, "summary": summary, "executed": list(report.executed)}
    return told | ({"deployment": answers(report)} if report.about_deployment else {})


def row(result: Result) -> dict[str, Any]:
    told = dataclasses.asdict(result) | {"examples_per_second": result.examples_per_second}
    if found := result.counterexample:
        told["counterexample"]["example"] = found.example
    return told


def answers(report: Report) -> list[dict[str, str]]:
    """Can this server hang, overflow, fail at start, starve? The worst outcome answers, all that were asked say why.

    "not found" is no promise: nothing was violated in the examples, nothing is broken; `why` says what never came up.
    """
    found = []
    for question, patterns in QUESTIONS.items():
        asked = [one for one in report.results if any(fnmatchcase(one.invariant, pattern) for pattern in patterns)]
        asked.sort(key=lambda one: OUTCOMES.index(one.outcome))
        told = [f"{one.invariant} {one.outcome} ({one.message or f'{one.examples} examples'})" for one in asked]
        verdict = ANSWERS.get(asked[0].outcome, "unknown") if asked else "unknown"
        why = ", ".join(told) or "nothing was asked"
        found.append({"question": f"can this server {question}?", "answer": verdict, "why": why})
    return found
