"""What a sweep came to: plain data, described by sweeps.schema.json beside this file, and text made of it."""

import textwrap
import time
from collections.abc import Iterable, Mapping
from typing import Any

from cpbcg_ref.report.terminal import COLOURS, Printer
from cpbcg_ref.report.watching import Watcher
from cpbcg_ref.sweeping.run import Outcome, Progress
from cpbcg_ref.sweeping.scope import Batches, Search

BY_PERIOD = (
    "remainders: required rows depend on the remainders modulo 2 x cp_size and on the sum of whole blocks, and grow by "
    "2 x cp_size rows when that sum grows by cp_size. That is so by definition; for code of which it is true too, and "
    "to which the order of requests is nothing, these batches stand for requests of every length"
)
BATCHES = ("strategy", "cp", "requests", "which", "batches", "cpu s")
STATES = ("domain", "ranks", "states", "transitions", "passes", "all states", "cpu s")


def watch(watcher: Watcher, done: Progress) -> None:
    line = f"{done.done} of {done.total} parts, {time.monotonic() - done.began:.0f} s, last: {done.last}"
    watcher.see(line, done=done.done, total=done.total)


def document(outcome: Outcome) -> dict[str, Any]:
    """The sweep as plain data."""
    scope = vars(outcome.scope) | {name: list(getattr(outcome.scope, name)) for name in ("what", "cp_sizes")}
    batches, searches = of_batches(outcome), of_searches(outcome)
    asked, busy = sum(one["batches"] for one in batches), sum(one["seconds"] for one in batches)
    summary = {"layouts": asked, "layouts_per_cpu_second": round(asked / busy) if busy else None}
    summary |= {name: sum(one[name] for one in searches) for name in ("states", "transitions")}
    violations = [{"invariant": name} | told for name, told in outcome.violations.items()]
    for level in ("MUST", "SHOULD"):
        named = [one["invariant"] for one in violations if one["level"] == level]
        summary[f"{level.lower()}_violated"] = named
    summary |= {"parts": len(outcome.parts), "done": len(outcome.found), "resumed": outcome.resumed}
    summary |= {"seconds": round(outcome.seconds, 3), "workers": outcome.workers, "interrupted": outcome.interrupted}
    summary["exit_code"] = outcome.exit_code
    return {
        "target": {"engine": outcome.engine, "version": outcome.version},
        "scope": scope,
        "batches": batches,
        "negotiation": searches,
        "violations": violations,
        "skipped": outcome.skipped,
        "errors": outcome.problems,
        "summary": summary,
    }


def of_batches(outcome: Outcome) -> list[dict[str, Any]]:
    """Parts that differ in how their batches begin are one row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in outcome.parts:
        if isinstance(part, Batches) and (found := outcome.found.get(part.name)):
            kind = (part.strategy, part.cp_size, part.requests, part.kind, part.length)
            names = ("strategy", "cp_size", "requests", "kind", "length")
            row = rows.setdefault(kind, dict(zip(names, kind, strict=True)) | {"batches": 0, "seconds": 0.0})
            row["batches"] += found["layouts"]
            row["seconds"] = round(row["seconds"] + found["seconds"], 4)
    return [rows[kind] for kind in sorted(rows)]


def of_searches(outcome: Outcome) -> list[dict[str, Any]]:
    names = ("states", "transitions", "passes", "complete")
    told = []
    for part in outcome.parts:
        if isinstance(part, Search) and (found := outcome.found.get(part.name)):
            row = {"domain": part.domain, "ranks": part.ranks} | {name: found[name] for name in names}
            told.append(row | {"seconds": round(found["seconds"], 4)})
    return told


def show_sweep(told: Mapping[str, Any], printer: Printer) -> None:
    """What was swept and how much that is, then what was found."""
    if told["batches"]:
        printer.table(BATCHES, [batch_row(one) for one in told["batches"]])
        if any(one["kind"] == "remainders" for one in told["batches"]):
            printer.wrapped(BY_PERIOD, indent="  ", hanging="")
            printer.say()
    if told["negotiation"]:
        printer.table(STATES, [search_row(one) for one in told["negotiation"]])
    for one in sorted(told["violations"], key=lambda one: one["level"] != "MUST"):
        show_violation(one, printer)
    reasons = (("ERROR", told["errors"], "error"), ("SKIP", told["skipped"], "skip"))
    for word, who, message, outcome in ((word, *pair, how) for word, pairs, how in reasons for pair in pairs.items()):
        printer.say()
        printer.finding(word, who, message, style=COLOURS[outcome])
    printer.say()
    printer.wrapped(summary_line(told), style="bold")
    printer.say(last_line(told["summary"]))


def batch_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    which = f"all up to {one['length']} tokens, in order" if one["kind"] == "lengths" else "remainders x whole blocks"
    return one["strategy"], one["cp_size"], one["requests"], which, one["batches"], one["seconds"]


def search_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("domain", "ranks", "states", "transitions", "passes")
    return (*(one[name] for name in names), "yes" if one["complete"] else "no", one["seconds"])


def show_violation(one: Mapping[str, Any], printer: Printer) -> None:
    must = one["level"] == "MUST"
    printer.say()
    printer.finding(
        "FAIL" if must else "ADVICE",
        one["invariant"],
        one["message"],
        style=COLOURS["fail" if must else "unwitnessed"],
    )
    if "picture" in one:
        passes = f"{one['size']} pass{'es' * (one['size'] != 1)}"
        printer.say(
            f"  no trace of these domains that breaks it is shorter: {passes} ({one['part'].rsplit(', ', 2)[0]})\n"
        )
        printer.say(textwrap.indent(one["picture"], "    "))
    printer.say()
    printer.wrapped(one["case"], indent="    ")


def summary_line(told: Mapping[str, Any]) -> str:
    """Such as "reference 0.1.0: 0 MUST violated, 43,000 batches, 500 states, 36,000 transitions"."""
    told, target = told["summary"], told["target"]
    found = [f"{len(told['must_violated'])} MUST violated"]
    found += [f"{len(told['should_violated'])} SHOULD violated"] if told["should_violated"] else []
    sizes = ((told["layouts"], "batches"), (told["states"], "states"), (told["transitions"], "transitions"))
    return f"{target['engine']} {target['version']}: {', '.join([*found, *counted(sizes)])}"


def counted(sizes: Iterable[tuple[int, str]]) -> list[str]:
    return [f"{number:,} {what}" for number, what in sizes if number]


def last_line(summary: Mapping[str, Any]) -> str:
    parts = f"{summary['done']} of {summary['parts']} parts"
    rate = summary["layouts_per_cpu_second"]
    speed = f", {rate:,} layouts a second of processor time" if rate else ""
    how = f"{summary['seconds']:.1f} s, {summary['workers']}{speed}"
    return f"{parts} in {how}, exit code {summary['exit_code']}"
