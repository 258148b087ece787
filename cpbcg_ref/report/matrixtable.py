"""The matrix for people at a terminal, while it is made and when it is there. Legible at 80 columns."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from cpbcg_ref.checking.side_by_side import Column as Checked
from cpbcg_ref.report.matrix import Cell, Column, Note, Row, View, view
from cpbcg_ref.report.matrixheadings import GAP, NARROW, Titles, titles
from cpbcg_ref.report.terminal import COLOURS, Printer, summary_line

SIGNS = {"pass": ".", "fail": "F", "error": "E", "unwitnessed": "?", "skip": "-"}
LEGEND = ". pass  F a MUST is violated  f a SHOULD is violated  ? unwitnessed  - skip  E error"


class Watcher:
    """Shows on stderr how the checks go: a line per running target on a terminal, elsewhere a line per finished one."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        # Drawn in `look` alone: a thread that draws would be in the way of forking.
        quiet: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
        columns = BarColumn(20), TextColumn("{task.description}", markup=False)
        self.bars = Progress(*columns, console=console, transient=True, **quiet)
        self.live, self.tasks, self.done, self.total = console.is_terminal, dict[str, TaskID](), 0, total

    def told(self, target: str, line: str) -> None:
        self.say(f"{target}: {line}")

    def progressed(self, target: str, done: int, total: int) -> None:
        if target not in self.tasks:
            self.tasks[target] = self.bars.add_task("", total=total)
        told = f"{target}: {done} of {total} families of cases"
        self.bars.update(self.tasks[target], completed=done, description=told)

    def ended(self, column: Checked) -> None:
        if column.target in self.tasks:
            self.bars.remove_task(self.tasks.pop(column.target))
        self.done += 1
        told = summary_line(column.report) if column.report else f"error: {column.problem}"
        self.say(f"[{self.done} of {self.total}] {column.target}: {told}")

    def look(self) -> None:
        if self.live:
            self.bars.start()
            self.bars.refresh()

    def say(self, line: str) -> None:
        self.stop()
        print(line, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Before something else is printed, and at the end."""
        if self.bars.live.is_started:  # else it would print an empty line
            self.bars.stop()


def show(found: Mapping[str, Any], printer: Printer) -> None:
    """The table, what its headings stand for, every violation in a sentence, reasons, the run."""
    shown = view(found)
    width = max(len(row.id) for row in shown.rows) + GAP
    room = printer.console.width - width
    for columns in blocks(shown.columns, most=max(1, room // NARROW)):
        show_block(shown, columns, titles(columns, room=room), width, printer)
    printer.say(LEGEND)
    for note in shown.notes:
        show_note(note, printer)
    printer.say()
    show_run(found, printer)


def blocks(columns: Sequence[Column], *, most: int) -> Iterator[Sequence[Column]]:
    """As many columns as fit beside each other, then the rest below."""
    for first in range(0, len(columns), most):
        yield columns[first : first + most]


def show_block(shown: View, columns: Sequence[Column], above: Titles, width: int, printer: Printer) -> None:
    """Some columns with all rows, a rule between families."""
    if above.engines:
        printer.say(" " * width + above.engines, style="bold")
    releases = "".join(heading.ljust(one) for heading, one in zip(above.releases, above.widths, strict=True))
    printer.say(" " * width + releases, style="bold")
    for rows in shown.families.values():
        printer.say("-" * (width + sum(above.widths) - GAP), style="dim")
        for row in rows:
            cells = [cell for cell in row.cells if cell.column in columns]
            printer.console.print(line(row, zip(cells, above.widths, strict=True), width), soft_wrap=True)
    for explained in above.key:
        printer.wrapped(explained)
    printer.say()


def line(row: Row, cells: Iterable[tuple[Cell, int]], width: int) -> Text:
    text = Text(row.id.ljust(width))
    for cell, room in cells:
        advice = cell.outcome == "fail" and cell.level == "SHOULD"
        sign = SIGNS[cell.outcome].lower() if advice else SIGNS[cell.outcome]
        text.append(sign.ljust(room), style=COLOURS["unwitnessed" if advice else cell.outcome])
    text.rstrip()
    return text


def show_note(note: Note, printer: Printer) -> None:
    """A violation is a sentence and the command for its case; a reason is a sentence."""
    printer.say()
    word = "ADVICE" if (note.outcome, note.level) == ("fail", "SHOULD") else note.outcome.upper()
    style = COLOURS["unwitnessed" if word == "ADVICE" else note.outcome]
    printer.finding(word, note.about, note.message, style=style)
    if not note.columns[0].problem:  # then its target has been named
        printer.wrapped(note.where, indent="    ", hanging="")
    for command in list(note.commands.values())[:1]:
        printer.say(f"    {command}")


def show_run(found: Mapping[str, Any], printer: Printer) -> None:
    versions = [f"{name} {found[name]}" for name in ("cpbcg", "python", "hypothesis", "torch") if found[name]]
    printer.wrapped(f"{found['date']}, {', '.join(versions)}")
    told = f"{len(found['asked'])} targets in {found['seconds']:.1f} s, profile {found['profile']}"
    printer.say(f"{told}, seed {found['seed']}, exit code {found['exit_code']}")
