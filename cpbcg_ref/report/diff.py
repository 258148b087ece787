"""How two engines compare: as plain data, which is described by diff.schema.json beside this file, and for people."""

import json
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from cpbcg_ref.checking.differences import OUTCOMES, Compared, Comparison, labels
from cpbcg_ref.checking.sides import Described
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants.pictures import printable, table
from cpbcg_ref.report.terminal import Printer

COLOURS = {"different": "bold yellow", "error": "bold magenta", "same": "green", "skip": "dim"}
MOST_PLACES = 12


class Engine(TypedDict):
    """label: its name in columns."""

    target: str
    engine: str
    version: str
    label: str


class Place(TypedDict):
    place: str
    a: str
    b: str


class Violated(TypedDict):
    a: list[str]
    b: list[str]


class DifferenceRow(TypedDict):
    case: dict[str, object]
    python: str
    example: str
    places: list[Place]
    picture: str
    violates: Violated
    smallest: bool
    reproduce: str


class Row(TypedDict):
    function: str
    outcome: str
    examples: int
    seconds: float
    message: str
    stopped: str
    witnesses: dict[str, int]
    unmet: list[str]
    difference: DifferenceRow | None


class Summary(TypedDict):
    different: int
    error: int
    same: int
    skip: int
    exit_code: int
    seconds: float
    profile: str
    seed: int


class Document(TypedDict):
    a: Engine
    b: Engine
    results: list[Row]
    summary: Summary


def document(found: Comparison, *, options: str = "") -> Document:
    """The finished comparison as plain data. options: what a command needs to reproduce it, beside the usual."""
    one, other = (engine(own, label) for own, label in zip(found.engines, labels(*found.engines), strict=True))
    targets = " ".join(shlex.quote(own["target"]) for own in (one, other))
    tail = f"--profile {found.profile} --seed {found.seed}{options}"
    rows = [row(own, f"cpbcg diff {targets} --select {own.function} {tail}") for own in found.results]
    counts = {outcome: len(found.of(outcome)) for outcome in OUTCOMES}
    run = {"seconds": round(found.seconds, 3), "profile": found.profile, "seed": found.seed}
    told = {"a": one, "b": other, "results": rows, "summary": counts | {"exit_code": found.exit_code} | run}
    return msgspec.convert(told, Document)


def engine(found: Described, label: str) -> Engine:
    return {"target": printable(found.target), "engine": found.name, "version": found.version, "label": label}


def row(found: Compared, reproduce: str) -> dict[str, object]:
    told = asdict(found) | {"unmet": list(found.unmet)}
    if own := found.difference:
        told["difference"] |= {"example": own.example, "reproduce": reproduce}
        told["difference"]["places"] = [dict(zip(("place", "a", "b"), one, strict=True)) for one in own.places]
        told["difference"]["violates"] = dict(zip("ab", map(list, own.violates), strict=True))
    return told


def read(path: Path) -> Document:
    """A stored comparison. Raises InvalidInput for a file that holds none, whoever wrote it."""
    try:
        return msgspec.convert(shown(json.loads(path.read_text(encoding="utf-8"))), Document)
    except msgspec.ValidationError as problem:
        raise InvalidInput(f"{path} is no comparison of `cpbcg diff --json`: {problem}") from problem
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{path} cannot be read as JSON: {problem}") from problem


def shown(stored: Any) -> Any:
    """The same with nothing in any text that a terminal obeys."""
    if isinstance(stored, str):
        return "\n".join(map(printable, stored.split("\n")))
    if isinstance(stored, dict):
        return {shown(key): shown(value) for key, value in stored.items()}
    return list(map(shown, stored)) if isinstance(stored, list) else stored


def named(own: Engine) -> str:
    return f"{own['engine']} {own['version']}"


def differences(told: Document) -> list[tuple[Row, DifferenceRow]]:
    return [(one, one["difference"]) for one in told["results"] if one["difference"]]


def by_case(told: Document) -> list[tuple[list[str], Row, DifferenceRow]]:
    """The functions that have their smallest case in common, and the first of them."""
    groups: dict[str, tuple[list[str], Row, DifferenceRow]] = {}
    for one, found in differences(told):
        groups.setdefault(found["python"], ([], one, found))[0].append(one["function"])
    return list(groups.values())


def alike(told: Document) -> list[tuple[Row, list[str]]]:
    """Functions without a difference, those of one family that were asked the same cases together."""
    groups: dict[tuple[object, ...], tuple[Row, list[str]]] = {}
    for one in told["results"]:
        if one["outcome"] == "same":
            key = one["function"].partition(".")[0], one["examples"], one["stopped"], *one["unmet"]
            groups.setdefault(key, (one, []))[1].append(one["function"])
    return list(groups.values())


def reasons(told: Document) -> list[tuple[str, str, list[str]]]:
    """Outcome, reason and functions of what was not compared."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in told["results"]:
        if one["outcome"] in ("error", "skip"):
            found.setdefault((one["outcome"], one["message"]), []).append(one["function"])
    return [(outcome, why, names) for (outcome, why), names in found.items()]


def no_difference(one: Row) -> str:
    """Such as "no difference in 250 examples over 2 witnesses (a chunk, a rest); never came up: a burst"."""
    met = [name for name, count in one["witnesses"].items() if count]
    over = f" over {counted(len(met), 'witness')} ({', '.join(met)})" if met else ""
    never = f"; never came up: {', '.join(one['unmet'])}" if one["unmet"] else ""
    early = f"; {one['stopped']}" if one["stopped"].startswith("the time") else ""
    return f"no difference in {counted(one['examples'], 'example')}{over}{never}{early}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def verdict(told: Document) -> str:
    """Such as "sglang 0.5.21 against sglang 0.5.22: 3 functions differ, 24 do not, 1 skipped"."""
    counts = told["summary"]
    differ = f"{counted(counts['different'], 'function')} differ{'s' * (counts['different'] == 1)}"
    found = [differ if counts["different"] else "no difference found"]
    found += [f"{counts['same']} {'do not' if counts['different'] else 'compared'}"]
    found += [f"{counted(counts['error'], 'error')}"] * bool(counts["error"])
    found += [f"{counts['skip']} skipped"] * bool(counts["skip"])
    return f"{named(told['a'])} against {named(told['b'])}: {', '.join(found)}"


def place_lines(found: DifferenceRow, told: Document) -> list[str]:
    """The fields and ranks that differ, the answers of both engines side by side."""
    heads, places = (told["a"]["label"], told["b"]["label"]), found["places"]
    lines = table([dict(zip(("place", *heads), one.values(), strict=True)) for one in places[:MOST_PLACES]])
    more = len(places) - MOST_PLACES
    return [*lines, *([f"and {counted(more, 'more place')}"] if more > 0 else [])]


def violated(found: DifferenceRow, told: Document) -> str:
    """What each engine violates on the case, "" where neither violates anything."""
    both = [(told[side]["label"], found["violates"][side]) for side in ("a", "b")]
    if not any(ids for _, ids in both):
        return ""
    return "; ".join(f"{label} violates {', '.join(ids) or 'nothing'}" for label, ids in both)


def show_diff(told: Document, printer: Printer) -> None:
    """A table of what was compared, what was not and why, what is alike, every difference: what matters comes last."""
    for side in ("A", "B"):
        own = told["a" if side == "A" else "b"]
        printer.say(f"{side}: {named(own)} ({own['target']})")
    printer.say()
    asked = [one for one in told["results"] if one["outcome"] != "skip"]
    rows = [(one["function"], one["outcome"], one["examples"], one["seconds"]) for one in asked]
    if rows:
        printer.table(("function", "outcome", "examples", "seconds"), rows)
    printer.say()
    for outcome, why, names in reasons(told):
        printer.finding(outcome.upper(), ", ".join(names), why, style=COLOURS[outcome])
    for one, names in alike(told):
        printer.finding("SAME", ", ".join(names), no_difference(one), style=COLOURS["same"])
    show_differences(told, printer)
    printer.say()
    printer.wrapped(verdict(told), style="bold")
    summary = told["summary"]
    end = f"profile {summary['profile']}, seed {summary['seed']}, exit code {summary['exit_code']}"
    printer.say(f"{len(told['results'])} functions in {summary['seconds']:.1f} s, {end}")


def show_differences(told: Document, printer: Printer) -> None:
    """A case that was shown for a function before is not shown again."""
    shown: dict[str, str] = {}
    for one, found in differences(told):
        printer.say()
        printer.finding("DIFFERENT", one["function"], one["message"], style=COLOURS["different"])
        show_indented(printer, place_lines(found, told))
        if found["python"] in shown:
            printer.say(f"\n  on the smallest case of {shown[found['python']]}")
        else:
            shown[found["python"]] = one["function"]
            show_case(one, found, told, printer)


def show_case(one: Row, found: DifferenceRow, told: Document, printer: Printer) -> None:
    show_indented(printer, found["picture"].splitlines())
    if wrong := violated(found, told):
        printer.say()
        printer.wrapped(f"on this case {wrong}", indent="  ", hanging="  ")
    printer.say(f"\n  {caption(found)}, after `from cpbcg_ref.cases import *`:")
    printer.wrapped(found["example"], indent="    ")
    printer.say(f"\n  reproduce:\n    {found['reproduce']}")


def caption(found: DifferenceRow) -> str:
    return "smallest case" if found["smallest"] else "a case, not the smallest: the time was up"


def show_indented(printer: Printer, lines: Sequence[str] | Iterable[str]) -> None:
    if text := "\n".join(lines):
        printer.say("\n" + textwrap.indent(text, "    "))
