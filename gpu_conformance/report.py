"""What a run says: the table of `cpbcg check`, then each group's stages, then ranks that failed."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console

from cpbcg_ref.checking.results import Report
from cpbcg_ref.report import files, jsonreport, terminal
from gpu_conformance.session import Asked, Served, results

STAGES = ("capture", "replay", "eager", "reference")
COLUMNS = ("driver", "cp_size", "arithmetic", "batches", *STAGES, "batches_per_second", "hit_rate", "padding_waste")


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
        told |= {"profile": self.asked.driver, "seed": self.asked.seed, "seconds": self.seconds}
        return Report(**told, executed=(), results=results(self.done))

    @property
    def failures(self) -> list[Served]:
        return [one for one in self.done if one.failure]

    @property
    def exit_code(self) -> int:
        code = self.report.exit_code
        return code if code == 1 or not self.failures else 2


def stages(one: Served) -> dict[str, Any]:
    """How a group fared: seconds per stage of rank 0, waiting for the others included."""
    told: dict[str, Any] = {"driver": one.driver, "cp_size": one.cp_size, "arithmetic": one.arithmetic}
    told["seconds"] = round(one.seconds, 3)
    if one.seen:
        first = one.seen[0]
        told |= {stage: round(first.seconds.get(stage, 0.0), 3) for stage in STAGES}
        batches = first.replayed + first.eager
        told |= {"batches": batches, "batches_per_second": round(batches / one.seconds, 1)}
        told["hit_rate"] = round(first.replayed / batches, 3) if batches else None
        told["padding_waste"] = round(1 - first.replayed_tokens / first.padded, 3) if first.padded else None
    return told


def row(told: dict[str, Any]) -> list[Any]:
    return [told.get(name, "-") for name in COLUMNS]


def document(run: Run) -> dict[str, Any]:
    told = jsonreport.document(run.report)
    told["summary"]["exit_code"] = run.exit_code
    failed = [{"driver": one.driver, "cp_size": one.cp_size, **(one.failure or {})} for one in run.failures]
    return told | {"groups": list(map(stages, run.done)), "infrastructure": failed[0] if failed else None}


def deliver(run: Run, json_file: str | None) -> None:
    files.write(json_file, jsonreport.as_json(document(run)))
    if json_file != "-":
        with files.stdout() as stream:
            show(run, terminal.Printer(stream))


def show(run: Run, printer: terminal.Printer) -> None:
    rows = [(one.invariant, one.level, one.outcome, one.examples) for one in run.report.results]
    printer.table(("invariant", "level", "outcome", "batches"), rows)
    for one in run.report.of("fail"):
        printer.say()
        printer.finding("FAIL", one.invariant, one.message, style=terminal.COLOURS["fail"])
    terminal.show_reasons(printer, run.report)
    printer.say()
    printer.table([name.replace("_", " ") for name in COLUMNS], [row(stages(one)) for one in run.done])
    for one in run.failures:
        show_infrastructure(printer, one)
    printer.say()
    printer.say(terminal.summary_line(run.report), style="bold")
    printer.say(f"{len(run.done)} groups in {run.seconds:.1f} s, seed {run.asked.seed}, exit code {run.exit_code}")


def show_infrastructure(printer: terminal.Printer, one: Served) -> None:
    blame = one.failure or {}
    printer.say()
    where = f"{one.driver}, cp {one.cp_size}"
    sentence = f"rank {blame['rank']} {blame['kind']} ({blame['detail']}), last operation: {blame['last_operation']}"
    printer.finding("INFRASTRUCTURE", where, sentence, style=terminal.COLOURS["error"])
    for rank, stack in blame["stacks"].items():
        printer.say(f"  rank {rank} was at:" if stack else f"  rank {rank} did not answer")
        printer.say(textwrap.indent("\n".join(stack.splitlines()[:12]), "    "))


@contextmanager
def progress() -> Iterator[Callable[[Served, int], None]]:
    """Shown on stderr if that is a terminal."""
    with Console(stderr=True).status("capturing") as status:
        done: list[Served] = []

        def tell(one: Served, total: int) -> None:
            done.append(one)
            status.update(f"{len(done)} of {total} groups done, last {one.driver} with {one.cp_size} ranks")

        yield tell
