"""A badge per target, in the form that shields.io reads from an endpoint: https://shields.io/badges/endpoint-badge."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.report.jsonreport import as_json
from cpbcg_ref.report.matrix import Column, view


def check_folder(folder: str | None) -> None:
    """Make the folder, before a long check that could not be written down."""
    try:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CpbcgError(f"cannot write badges into {folder}: {problem.strerror}") from problem


def write(folder: str | None, found: Mapping[str, Any]) -> None:
    for name, told in badges(found) if folder is not None else ():
        Path(folder or "", name).write_text(as_json(told), encoding="utf-8")


def badges(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, badge) of every target; two targets never share a file name."""
    taken = set[str]()
    for column in view(found).columns:
        stem = name = re.sub(r"[^A-Za-z0-9.]+", "-", column.target).strip("-.") or "target"
        while name in taken:
            name += f"-{stem}"
        taken.add(name)
        yield f"{name}.json", badge(column, found["targets"].get(column.target))


def badge(column: Column, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Red if a MUST is violated; never green if something of level MUST broke or was never met."""
    message, color = said(report["summary"]) if report else ("cannot be checked", "lightgrey")
    return {"schemaVersion": 1, "label": f"cpbcg {column.name}", "message": message, "color": color}


def said(summary: Mapping[str, Any]) -> tuple[str, str]:
    code, violated, advised = summary["exit_code"], len(summary["must_violated"]), len(summary["should_violated"])
    if code == 1:
        return f"{violated} MUST violated", "red"
    if code == 2:
        return f"{summary['error']} errors", "lightgrey"
    if code == 3:
        return f"{summary['unwitnessed']} unwitnessed", "yellow"
    return f"{summary['pass']} pass" + (f", {advised} advised" if advised else ""), "brightgreen"
