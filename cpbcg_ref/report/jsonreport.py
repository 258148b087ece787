"""The report for programs: one document per check, described by schema.json beside this file."""

import dataclasses
import json
from typing import Any

from cpbcg_ref.checking.results import OUTCOMES
from cpbcg_ref.report.summary import Report, answers


def document(report: Report) -> dict[str, Any]:
    """The finished check as plain data; `deployment` is there only when a deployment was checked."""
    started, finished = report.started, report.finished
    deployment = {"deployment": answers(report)} if report.about_deployment else {}
    return {
        "target": {"engine": started.engine, "version": started.version},
        "results": [dataclasses.asdict(result) for result in report.results],
        "summary": {outcome: report.count(outcome) for outcome in OUTCOMES}
        | {
            "must_violated": [result.invariant for result in report.violated("MUST")],
            "should_violated": [result.invariant for result in report.violated("SHOULD")],
            "exit_code": report.exit_code,
            "seconds": round(finished.seconds, 3),
            "profile": started.profile,
            "seed": started.seed,
        },
        "executed": list(finished.executed),
    } | deployment


def as_json(value: Any) -> str:
    """Indented; ASCII only, so that it survives any terminal and any file encoding."""
    return json.dumps(value, indent=2) + "\n"
