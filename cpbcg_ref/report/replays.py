"""Saved failures: what a replay gave, and what is saved; for people and for programs."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from cpbcg_ref.checking.replaying import ERROR, FAILED, FIXED, Replayed, exit_code
from cpbcg_ref.checking.saved import Saved, document
from cpbcg_ref.report.terminal import Printer

COLOURS = {FIXED: "green", FAILED: "bold red", ERROR: "bold magenta"}


@contextmanager
def progress(of: int) -> Iterator[Callable[[int], None]]:
    """A function to tell how many are done; meanwhile shown on stderr if that is a terminal."""
    with Console(stderr=True).status(f"replayed 0 of {of}") as status:
        yield lambda done: status.update(f"replayed {done} of {of}")


def replays_document(replayed: Sequence[Replayed], *, strict: bool = False) -> dict[str, Any]:
    """The verdicts as plain data."""
    counts = {outcome.lower(): sum(one.outcome == outcome for one in replayed) for outcome in COLOURS}
    return {
        "replays": list(map(asdict, replayed)),
        "summary": counts | {"exit_code": exit_code(replayed, strict=strict)},
    }


def show_replays(told: Mapping[str, Any], printer: Printer) -> None:
    """A line per failure, a picture where it fails still; for several a summary, which comes last."""
    for before, one in pairwise([{"picture": ""}, *told["replays"]]):
        if before["picture"]:
            printer.say()
        show_replay(one, printer)
    if len(told["replays"]) > 1:
        *outcomes, (_, code) = told["summary"].items()
        counted = ", ".join(f"{count} {outcome.upper()}" for outcome, count in outcomes if count)
        printer.say(f"\n{len(told['replays'])} replayed: {counted}, exit code {code}", style="bold")


def show_replay(one: Mapping[str, Any], printer: Printer) -> None:
    engine = f"{one['engine']} {one['version']}".strip() or one["target"]
    who, style = (
        " ".join(filter(None, (one["id"], one["invariant"], engine and f"on {engine}"))),
        COLOURS[one["outcome"]],
    )
    if not one["message"]:
        printer.say(f"{one['outcome']} {who}", style=style)
        return
    printer.finding(one["outcome"], who, one["message"], style=style)
    if one["picture"]:
        printer.say("\n" + textwrap.indent(one["picture"], "    "))


def saved_document(folder: Path, found: Sequence[Saved], broken: Sequence[Replayed]) -> dict[str, Any]:
    """What a folder holds as plain data."""
    unreadable = [{"id": one.id, "message": one.message} for one in broken]
    return {"folder": str(folder), "failures": list(map(document, found)), "unreadable": unreadable}


def show_saved(told: Mapping[str, Any], printer: Printer) -> None:
    saved = told["failures"]
    if saved:
        rows = [tuple(one[name] for name in ("id", "invariant", "level", "target", "saved")) for one in saved]
        printer.table(("id", "invariant", "level", "found on", "at"), rows)
        printer.say()
    for one in told["unreadable"]:
        printer.finding(ERROR, one["id"], one["message"], style=COLOURS[ERROR])
    printer.say(
        f"{len(saved) or 'nothing'} saved in {told['folder']}" + (", delete a file to forget it" if saved else "")
    )
