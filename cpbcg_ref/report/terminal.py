"""The report for people: a table, then every failure in full. Colour only on a terminal, ASCII everywhere."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.report.jsonreport import answers

LINE = 99  # longest first line of a finding; a sentence that fits is never wrapped, also on a narrow terminal
COLOURS = {"pass": "green", "fail": "bold red", "error": "bold magenta", "unwitnessed": "yellow", "skip": "dim"}
COLOURS |= {"fail, known": "yellow", "ok": "green", "broken": "bold red", "not offered": "dim"}


class Printer:
    """Prints tables and lines on one stream; whatever is not a terminal gets plain text of a fixed width."""

    def __init__(self, file: TextIO) -> None:
        self.console = Console(file=file)
        self.fancy = self.console.is_terminal and not self.console.is_dumb_terminal
        self.console.width = self.console.width if self.fancy else 100

    def say(self, text: str = "", *, style: str = "") -> None:
        """Lines as they are: never wrapped by the console, so that they can be copied."""
        for line in text.split("\n"):
            self.console.print(Text(line.rstrip(), style=style), soft_wrap=True)

    def wrapped(self, text: str, *, style: str = "", indent: str = "", hanging: str = "    ") -> None:
        width = min(self.console.width, LINE)
        wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        wrap.initial_indent, wrap.subsequent_indent = indent, indent + hanging
        self.say(wrap.fill(text), style=style)

    def finding(self, word: str, who: str, message: str, *, style: str) -> None:
        """One line with the numbers, unless that is too long for any page."""
        line = f"{word} {who}: {message}"
        (self.say if len(line) <= LINE else self.wrapped)(line, style=style)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Numbers stand to the right, an outcome has its colour."""
        table = Table(box=box.SIMPLE_HEAD if self.fancy else None, padding=(0, 2, 0, 0), show_edge=False)
        for header, column in zip(headers, zip(*rows, strict=True), strict=True):
            numbers = all(isinstance(cell, (int, float)) for cell in column)
            table.add_column(header, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
            table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in cells))
        with self.console.capture() as printed:
            self.console.print(table)
        self.console.file.write("\n".join(line.rstrip() for line in printed.get().split("\n")))


@contextmanager
def progress(what: str = "families of cases") -> Iterator[Callable[[str, int, int], None]]:
    """A function to tell (engine, done, of how many); meanwhile shown on stderr if that is a terminal."""
    with Console(stderr=True).status("") as status:
        yield lambda engine, done, total: status.update(f"{engine}: {done} of {total} {what}")


def show_check(report: Report, printer: Printer) -> None:
    """What was executed, the table, then the findings: what matters comes last."""
    show_executed(printer, report.executed)
    rows = [(one.invariant, one.level, outcome(one), one.examples, one.seconds) for one in report.results]
    printer.table(("invariant", "level", "outcome", "examples", "seconds"), rows)
    show_findings(report, printer)
    printer.say()
    printer.wrapped(summary_line(report), style="bold")
    judged = f"{sum(one.examples for one in report.results)} verdicts in {report.seconds:.1f} s"
    printer.say(f"{judged}, profile {report.profile}, seed {report.seed}, exit code {report.exit_code}")


def show_findings(report: Report, printer: Printer) -> None:
    """Failures, what was not judged and why, what that means for a deployment."""
    failures = sorted(report.of("fail"), key=lambda one: (not one.known, one.level != "MUST"))
    for one in failures:
        if one.known:
            show_known(printer, one)
        else:
            show_failure(printer, "FAIL" if report.strict or one.level == "MUST" else "ADVICE", one)
    show_reasons(printer, report)
    if report.about_deployment:
        printer.say()
        for entry in answers(report):
            printer.wrapped(f"{entry['question']} {entry['answer']}: {entry['why']}")


def outcome(result: Result) -> str:
    return "fail, known" if result.known else result.outcome


def show_known(printer: Printer, result: Result) -> None:
    """Without the case: it was not shrunk."""
    printer.say()
    printer.finding("KNOWN", result.invariant, result.message, style=COLOURS["fail, known"])
    printer.wrapped(f"{result.reason} ({result.link})", indent="    ", hanging="")
    printer.say(f"    {result.reproduce}")


def show_failure(printer: Printer, word: str, result: Result) -> None:
    printer.say()
    printer.finding(word, result.invariant, result.message, style=COLOURS["fail" if word == "FAIL" else "unwitnessed"])
    if found := result.counterexample:
        printer.say("\n" + textwrap.indent(found.picture, "    "))
        printer.say("\n  smallest case, to pin on any test with @given(case=cases_for(...)),")
        printer.say("  after `from hypothesis import example` and `from cpbcg_ref.cases import *`:")
        printer.wrapped(found.example, indent="    ")
        printer.say(f"\n  reproduce:\n    {result.reproduce}")
        if result.replay:
            printer.say(f"\n  saved, put it to this or another target:\n    {result.replay} [--target TARGET]")


def show_reasons(printer: Printer, report: Report) -> None:
    """What was not judged, or not in full: a line per reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for outcome in ("error", "unwitnessed", "skip", "pass"):
        for one in report.of(outcome):
            if one.message:
                alike.setdefault((outcome, one.message), []).append(one.invariant)
    if alike:
        printer.say()
    for (outcome, message), names in alike.items():
        printer.finding(outcome.upper(), ", ".join(names), message, style=COLOURS[outcome])


def show_executed(printer: Printer, executed: Sequence[str]) -> None:
    """A line per file of the engine, with the functions that ran."""
    files: dict[str, list[str]] = {}
    for function in executed:
        file, _, name = function.rpartition(":")
        files.setdefault(file, []).append(name)
    printer.say(f"executed {len(executed)} functions in {len(files)} files of the engine:")
    for file, names in files.items():
        printer.wrapped(f"{file}: {', '.join(names)}", indent="  ")
    printer.say()


def summary_line(report: Report) -> str:
    """Such as "sglang 0.5.17: 2 MUST violated, 31 pass, 4 skip"."""
    known = {level: sum(one.known for one in report.of("fail", level)) for level in ("MUST", "SHOULD")}
    counted = [
        (len(report.of("fail", level)), f"{level} violated" + (f" ({some} of them known)" if some else ""))
        for level, some in known.items()
    ]
    counted += [(len(report.of(outcome)), outcome) for outcome in ("error", "unwitnessed", "pass", "skip")]
    counts = ", ".join(f"{number} {what}" for number, what in counted if number or what == "MUST violated")
    return f"{report.engine} {report.version}: {counts}"
