"""Many checks in one table: as plain data, described by matrix.schema.json beside this file, and as what all renderers
of it share: columns by engine, rows by family, a cell per verdict, and one note for all cells that say the same."""

import importlib.metadata
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from cpbcg_ref.checking.side_by_side import Matrix
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.report import jsonreport

# Sign and word of an outcome: nothing is told by a colour alone.
SIGNS = {"pass": "✓", "fail": "✗", "error": "⚠", "unwitnessed": "?", "skip": "-"}
ADVICE = "△"  # the sign of a SHOULD that fails
WORST_FIRST = ("fail", "error", "unwitnessed", "skip", "pass")


def document(matrix: Matrix, *, command: str) -> dict[str, Any]:
    """The matrix as plain data: per target what `cpbcg check --json` writes, or why there is nothing."""
    reports = {column.target: jsonreport.document(column.report) for column in matrix.columns if column.report}
    problems = {column.target: column.problem for column in matrix.columns if column.problem}
    told = {"date": matrix.began.isoformat(timespec="seconds"), "profile": matrix.profile, "seed": matrix.seed}
    told |= {"python": platform.python_version()} | {name: release(name) for name in ("cpbcg", "hypothesis", "torch")}
    told |= {"command": command, "seconds": round(matrix.seconds, 1), "exit_code": matrix.exit_code}
    return told | {"asked": [one.target for one in matrix.columns], "targets": reports, "problems": problems}


def release(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A target. problem: why it has no verdicts."""

    target: str
    engine: str
    version: str
    results: Mapping[str, dict[str, Any]]
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.engine} {self.version}".strip()


@dataclass(kw_only=True)
class Note:
    """What several cells say alike: a violation with its case, or a reason. commands: by target."""

    id: str
    outcome: str
    message: str
    counterexample: dict[str, Any] | None
    invariants: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The ids; of a target that could not be asked at all, the target."""
        return ", ".join(column.target for column in self.columns if column.problem) or ", ".join(self.invariants)

    @property
    def where(self) -> str:
        """Such as "sglang 0.5.16, 0.5.17; reference 0.1.0"."""
        engines = [(engine, list(of_it)) for engine, of_it in groupby(self.columns, key=lambda column: column.engine)]
        return "; ".join(f"{engine} {', '.join(one.version for one in of_it)}".strip() for engine, of_it in engines)

    @property
    def level(self) -> str:
        return max((REGISTRY[name].level for name in self.invariants), key=("SHOULD", "MUST").index)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One verdict. note: None for a pass that needs no word."""

    column: Column
    outcome: str
    level: str
    examples: int
    note: Note | None

    @property
    def sign(self) -> str:
        return ADVICE if (self.outcome, self.level) == ("fail", "SHOULD") else SIGNS[self.outcome]

    @property
    def hover(self) -> str:
        return self.note.message if self.note else f"{self.examples} examples"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One invariant."""

    id: str
    level: str
    statement: str
    sources: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def family(self) -> str:
        return self.id.split(".")[0]


@dataclass(frozen=True, kw_only=True)
class View:
    """The table and its notes, the worst first."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]

    @property
    def engines(self) -> dict[str, list[Column]]:
        return {engine: list(of_it) for engine, of_it in groupby(self.columns, key=lambda column: column.engine)}

    @property
    def families(self) -> dict[str, list[Row]]:
        return {family: list(rows) for family, rows in groupby(self.rows, key=lambda row: row.family)}


def view(found: Mapping[str, Any]) -> View:
    """Of what `document` returns."""
    columns = [column_of(target, found) for target in found["asked"]]
    engines = list(dict.fromkeys(column.engine for column in columns))
    columns.sort(key=lambda column: engines.index(column.engine))
    asked = {name for column in columns for name in column.results} or {*REGISTRY}
    notes: dict[tuple[Any, ...], Note] = {}
    rows = tuple(row_of(name, columns, notes) for name in REGISTRY if name in asked)
    told = sorted(notes.values(), key=lambda note: (WORST_FIRST.index(note.outcome), note.level != "MUST"))
    return View(columns=tuple(columns), rows=rows, notes=tuple(told))


def column_of(target: str, found: Mapping[str, Any]) -> Column:
    if report := found["targets"].get(target):
        return Column(target=target, **report["target"], results={one["invariant"]: one for one in report["results"]})
    named = re.fullmatch(r"([\w-]+)(?:==|@)(.*)", target, re.DOTALL)
    engine, version = named.groups() if named else (target, "")
    return Column(target=target, engine=engine, version=version, results={}, problem=found["problems"][target])


def row_of(name: str, columns: list[Column], notes: dict[tuple[Any, ...], Note]) -> Row:
    known = REGISTRY[name]
    return Row(
        id=name,
        level=known.level,
        statement=known.statement,
        sources=known.sources,
        cells=tuple(cell_of(name, column, notes) for column in columns),
    )


def cell_of(name: str, column: Column, notes: dict[tuple[Any, ...], Note]) -> Cell:
    broken: dict[str, Any] = {"outcome": "error", "message": column.problem, "examples": 0}
    result = broken if column.problem else column.results[name]
    note = note_on(column, name, result, notes) if result["message"] else None
    told = {"outcome": result["outcome"], "level": REGISTRY[name].level, "examples": result["examples"]}
    return Cell(column=column, note=note, **told)


def note_on(column: Column, name: str, result: Mapping[str, Any], notes: dict[tuple[Any, ...], Note]) -> Note:
    """The note of a cell, made or shared. A violation is one invariant's, a reason one engine's."""
    case, outcome, message = result.get("counterexample"), result["outcome"], result["message"]
    key = (outcome, message, name, case["python"]) if case else (outcome, message, column.engine)
    note = notes.setdefault(key, Note(id=f"n{len(notes) + 1}", outcome=outcome, message=message, counterexample=case))
    if name not in note.invariants:
        note.invariants.append(name)
    if column not in note.columns:
        note.columns.append(column)
    if command := result.get("reproduce"):
        note.commands[column.target] = command
    return note
