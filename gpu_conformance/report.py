"""What a run says: the table of `cpbcg check`, what failed and how to see it again, each group's stages."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from rich.console import Console
from rich.live import Live

from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.report import files, jsonreport, terminal
from gpu_conformance.scenarios import Asked
from gpu_conformance.verdicts import Served, failures, reproduce, results

STAGES = ("capture", "replay", "eager", "reference")
COLUMNS = {stage: stage for stage in STAGES}
COLUMNS |= {"batches_per_second": "batches/s", "hit_rate": "hits", "padding_waste": "padding"}
LEGEND = "seconds of rank 0 by stage; share of batches that were replayed; share of rows that were padding"
STACK_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Run:
    target: str
    engine: Any
    asked: Asked
    done: Sequence[Served]
    seconds: float

    @cached_property
    def report(self) -> Report:
        told = {"target": self.target, "engine": self.engine.name, "version": self.engine.version}
        told |= {"profile": "conformance", "seed": self.asked.seed, "seconds": self.seconds}
        return Report(**told, executed=(), results=results(self.done, self.asked, self.target))

    @cached_property
    def failures(self) -> list[Served]:
        return failures(self.done)

    @property
    def exit_code(self) -> int:
        code = self.report.exit_code
        return code if code == 1 or not self.failures else 2


def document(run: Run) -> dict[str, Any]:
    """As `cpbcg check --json`, and how each group fared and which rank failed."""
    told = jsonreport.document(run.report)
    told["summary"]["exit_code"] = run.exit_code
    blamed = infrastructure(run, run.failures[0]) if run.failures else None
    return told | {"groups": list(map(stages, run.done)), "infrastructure": blamed}


def stages(one: Served) -> dict[str, Any]:
    """How a group fared: seconds per stage of rank 0, waiting for the others included; null where it did not end."""
    told: dict[str, Any] = {"driver": one.driver, "cp_size": one.cp_size, "workload": one.group.workload}
    told |= {"arithmetic": one.arithmetic, "seconds": round(one.seconds, 3)}
    first = one.seen[0] if one.seen else None
    told |= {stage: round(first.seconds.get(stage, 0.0), 3) if first else None for stage in STAGES}
    batches = first.replayed + first.eager if first else 0
    told |= {"batches": batches, "batches_per_second": round(batches / one.seconds, 1) if batches else None}
    told["hit_rate"] = round(first.replayed / batches, 3) if first and batches else None
    told["padding_waste"] = round(1 - first.replayed_tokens / first.padded, 3) if first and first.padded else None
    return told


def infrastructure(run: Run, one: Served) -> dict[str, Any]:
    where = {"driver": one.driver, "cp_size": one.cp_size, "workload": one.group.workload}
    blame = dict(one.failure or {})
    blame["stacks"] = {str(rank): stack for rank, stack in blame["stacks"].items()}
    return where | blame | {"reproduce": reproduce(one.group, run.asked, run.target)}


def deliver(run: Run, json_file: str | None) -> None:
    files.write(json_file, jsonreport.as_json(document(run)))
    if json_file != "-":
        with files.stdout() as stream:
            show(run, terminal.Printer(stream))


def show(run: Run, printer: terminal.Printer) -> None:
    """What went well first, what must be read last."""
    show_stages(run, printer)
    rows = [(one.invariant, one.level, one.outcome, one.examples) for one in run.report.results]
    printer.table(("invariant", "level", "outcome", "batches"), rows)
    for one in run.report.of("fail"):
        show_failure(printer, one)
    terminal.show_reasons(report=run.report, printer=printer)
    for served in run.failures:
        show_infrastructure(run, printer, served)
    printer.say()
    printer.say(terminal.summary_line(run.report), style="bold")
    ranks = f", {len(run.failures)} of them with a rank that failed" if run.failures else ""
    groups = f"{len(run.done)} groups{ranks}" if len(run.done) > 1 else f"1 group{ranks}"
    printer.say(f"{groups} in {run.seconds:.1f} s, seed {run.asked.seed}, exit code {run.exit_code}")


def show_stages(run: Run, printer: terminal.Printer) -> None:
    told = list(map(stages, run.done))
    rows = [[one.name, *map(cell, map(row.get, COLUMNS))] for one, row in zip(run.done, told, strict=True)]
    printer.table(["group", *COLUMNS.values()], rows)
    printer.wrapped(LEGEND, style="dim")
    printer.say()


def cell(value: Any) -> Any:
    return "-" if value is None else float(value)


def show_failure(printer: terminal.Printer, one: Result) -> None:
    printer.say()
    printer.finding("FAIL", one.invariant, one.message, style=terminal.COLOURS["fail"])
    if one.counterexample:
        printer.say()
        for line in one.counterexample.picture.split("\n"):
            printer.wrapped(line, indent="    ")
    printer.say("\n  reproduce:")
    printer.say(f"    {one.reproduce}")


def show_infrastructure(run: Run, printer: terminal.Printer, one: Served) -> None:
    blame = infrastructure(run, one)
    printer.say()
    sentence = f"rank {blame['rank']} {blame['kind']} ({blame['detail']}), last operation: {blame['last_operation']}"
    printer.finding("INFRASTRUCTURE", one.name, sentence, style=terminal.COLOURS["error"])
    for rank, stack in blame["stacks"].items():
        printer.say(f"\n    rank {rank} was at:" if stack else f"\n    rank {rank} did not answer")
        if stack:
            printer.say(textwrap.indent("\n".join(stack.splitlines()[:STACK_LINES]), "      "))
    printer.say(f"\n  reproduce:\n    {blame['reproduce']}")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Lines on stderr that are written anew, if that is a terminal. By no thread: workers are yet to be forked."""
    with Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True) as live:
        yield partial(live.update, refresh=True)
