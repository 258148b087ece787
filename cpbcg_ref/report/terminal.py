"""The report for people: a table, then every failure in full. Colour only on a terminal, ASCII everywhere."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box, progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cpbcg_ref.checking.results import Event, Progress, Result, Started
from cpbcg_ref.report.summary import Report, answers

LINE = 99  # longest first line of a finding; a sentence that fits is never wrapped, also on a narrow terminal
COLOURS = {"pass": "green", "fail": "bold red", "error": "bold magenta", "unwitnessed": "yellow", "skip": "dim"}
HEADERS = ("invariant", "level", "outcome", "examples", "seconds", "message")


class Printer:
    """Prints tables and lines on one stream; whatever is not a terminal gets plain text of a fixed width."""

    def __init__(self, file: TextIO) -> None:
        self.console = Console(file=file)
        self.fancy = self.console.is_terminal and not self.console.is_dumb_terminal
        self.width = self.console.width if self.fancy else 100

    def say(self, text: str = "", *, style: str = "", indent: int = 0) -> None:
        """Lines as they are: never wrapped by the console, so that they can be copied."""
        for line in text.split("\n"):
            self.console.print(Text((" " * indent + line).rstrip(), style=style), soft_wrap=True)

    def wrapped(self, text: str, *, style: str = "", hanging: int = 4, indent: int = 0) -> None:
        lines = textwrap.wrap(
            text,
            min(self.width, LINE),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.say("\n".join(lines), style=style)

    def finding(self, word: str, result: Result, style: str) -> None:
        """One line for the id and the sentence with its numbers, unless that is too long for any page."""
        line = f"{word} {result.invariant}: {result.message}"
        (self.say if len(line) <= LINE else self.wrapped)(line, style=style)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
        """Columns as wide as they need, the last one cut at the width; `numbers` names those aligned to the right."""
        widths = [max(len(str(cell)) for cell in column) for column in zip(headers, *rows, strict=True)]
        rest = self.width - sum(widths[:-1]) - 2 * (len(widths) - 1)
        if rest < 16 and widths[-1] > rest:  # too narrow for sentences: they follow below the table
            headers, rows, rest = headers[:-1], [row[:-1] for row in rows], self.width
        cut = [[*row[:-1], shortened(row[-1], rest)] for row in rows]
        if self.fancy:
            self.console.print(rich_table(headers, cut, numbers))
            return
        for row in (headers, *cut):
            cells = (c.rjust(w) if h in numbers else c.ljust(w) for h, c, w in zip(headers, row, widths, strict=False))
            self.say("  ".join(cells))


def shortened(text: str, width: int) -> str:
    line = text.split("\n")[0]
    return line if len(line) <= width else line[: width - 3] + "..."


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, collapse_padding=True)
    for name in headers:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return table


@contextmanager
def progress_bar(file: TextIO) -> Iterator[Callable[[Event], None]]:
    """A function to call with every event; shows a bar while the check runs if `file` is a terminal."""
    console = Console(file=file)
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
    bar = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def tell(event: Event) -> None:
        if isinstance(event, Started):
            bar.add_task(f"{event.engine} {event.version}", total=event.budget)
        elif isinstance(event, Progress):
            bar.update(bar.task_ids[0], advance=event.examples)

    with bar:
        yield tell


def show_check(report: Report, file: TextIO, *, verbose: bool = False) -> None:
    """Table, failures, what was not judged and why, what was executed, one summary line."""
    printer, started = Printer(file), report.started
    printer.table(HEADERS, [row(result) for result in report.results], numbers=("examples", "seconds"))
    for result in report.violated("MUST"):
        show_failure(printer, result, "FAIL")
    if advice := report.violated("SHOULD"):
        printer.say("\nAdvice (level SHOULD: fails the run only with --strict)")
        for result in advice:
            show_failure(printer, result, "FAIL" if report.strict else "ADVICE")
    for outcome in ("error", "unwitnessed"):
        show_unjudged(printer, [result for result in report.results if result.outcome == outcome], outcome)
    show_skipped(printer, [result for result in report.results if result.outcome == "skip"])
    show_executed(printer, report.finished.executed, verbose=verbose)
    if report.about_deployment:
        printer.say()
        for entry in answers(report):
            printer.wrapped(f"{entry['question']} {entry['answer']}: {entry['why']}")
    printer.say()
    printer.wrapped(summary_line(report), style="bold")
    judged = f"{sum(result.examples for result in report.results)} verdicts in {report.finished.seconds:.1f} s"
    printer.say(f"{judged}, profile {started.profile}, seed {started.seed}, exit code {report.exit_code}")


def row(result: Result) -> tuple[str, ...]:
    seconds = f"{result.seconds:.2f}"
    return (result.invariant, result.level, result.outcome, str(result.examples), seconds, result.message)


def show_failure(printer: Printer, result: Result, word: str) -> None:
    style = COLOURS["fail" if word == "FAIL" else "unwitnessed"]
    printer.say()
    printer.finding(word, result, style)
    if result.counterexample:
        printer.say("\n" + textwrap.indent(result.counterexample.picture, "    "))
        printer.say("\n  smallest case, after `from cpbcg_ref.cases import *`:")
        printer.wrapped(result.counterexample.python, indent=4)
    if result.reproduce:
        printer.say(f"\n  reproduce:\n    {result.reproduce}")


def show_unjudged(printer: Printer, results: Sequence[Result], outcome: str) -> None:
    if results:
        printer.say()
    for result in results:
        printer.finding(outcome.upper(), result, COLOURS[outcome])


def show_skipped(printer: Printer, results: Sequence[Result]) -> None:
    """One line per reason."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(result.message or "no reason given", []).append(result.invariant)
    if reasons:
        printer.say()
    for reason, names in reasons.items():
        printer.wrapped(f"SKIP {', '.join(names)}: {reason}", style=COLOURS["skip"])


def show_executed(printer: Printer, executed: Sequence[str], *, verbose: bool) -> None:
    files = Counter(name.rpartition(":")[0] for name in executed)
    if not files:
        return
    printer.say(f"\nexecuted {len(executed)} functions in {len(files)} files of the engine:")
    for line in executed if verbose else [f"{count:4}  {file}" for file, count in files.items()]:
        printer.say(line, indent=2)


def summary_line(report: Report) -> str:
    """Such as "sglang 0.5.17: 2 MUST violated, 31 pass, 4 skip"."""
    counted = [(len(report.violated(level)), f"{level} violated") for level in ("MUST", "SHOULD")]
    counted += [(report.count(outcome), outcome) for outcome in ("error", "unwitnessed", "pass", "skip")]
    counts = ", ".join(f"{number} {what}" for number, what in counted if number or what == "MUST violated")
    return f"{report.started.engine} {report.started.version}: {counts}"
