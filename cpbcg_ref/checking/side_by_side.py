"""Check many targets at once, each in a process of its own: two releases of an engine in one process poison each other.

What goes wrong with one of them is told in its column; the others still run.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from cpbcg_ref.checking import session
from cpbcg_ref.checking.results import Report
from cpbcg_ref.engines import targets
from cpbcg_ref.errors import CpbcgError

LARGE = ("vllm",)  # hundreds of megabytes a release: fetched only when named
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Column:
    """One target: what its check found, or in one sentence why there is nothing."""

    target: str
    report: Report | None = None
    problem: str = ""

    def __post_init__(self) -> None:
        assert bool(self.report) != bool(self.problem), "a report or a problem"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Every target that was asked for, in the order asked. began: UTC."""

    columns: tuple[Column, ...]
    profile: str
    seed: int
    began: datetime
    seconds: float

    @property
    def exit_code(self) -> int:
        """First that applies: 1 a target violates a MUST, 2 a target has no report or an error in it, 3 a MUST is
        unwitnessed, 0."""
        codes = {column.report.exit_code if column.report else 2 for column in self.columns}
        return next((code for code in (1, 2, 3) if code in codes), 0)


class Watch(Protocol):
    """Who wants to know how it goes. `look` is called several times a second."""

    def told(self, target: str, line: str) -> None: ...
    def progressed(self, target: str, done: int, total: int) -> None: ...
    def ended(self, column: Column) -> None: ...
    def look(self) -> None: ...


def shipped() -> list[str]:
    """The references, every release with a known sha256 and every engine without one that is installed; of those that
    are large only what is cached. No engine is imported and nothing is downloaded.

    >>> shipped()[:2]
    ['reference', 'reference:hardened']
    """
    found = []
    for engine in targets.known_engines():
        name = engine["name"]
        versions = engine["cached" if name in LARGE else "pinned"]
        found += [f"{name}=={version}" for version in versions]
        if name in targets.REFERENCES or (not engine["pinned"] and engine["installed"]):
            found.append(name)
    return found


def check_all(names: Sequence[str], *, workers: int | None = None, watch: Watch, **search: Any) -> Matrix:
    """Verdicts on every target, at most `workers` of them at a time. `search`: what `session.check` takes, profile and
    seed among it."""
    began, clock, cores = datetime.now(UTC), time.perf_counter(), workers or os.cpu_count() or 1
    search["workers"] = -(-cores // len(names))  # more than one only if there are more cores than targets
    with tempfile.TemporaryDirectory(prefix="cpbcg-") as temp:
        crew = Crew(waiting=list(names), at_once=cores, watch=watch, args=(search, temp))
        try:
            crew.run()
        finally:
            crew.stop()
    told = {"profile": search["profile"], "seed": search["seed"], "began": began}
    return Matrix(columns=tuple(map(crew.found.__getitem__, names)), seconds=time.perf_counter() - clock, **told)


@dataclass(kw_only=True)
class Crew:
    """The targets that wait, those that are being checked, and the columns that are there."""

    waiting: list[str]
    at_once: int
    watch: Watch
    args: tuple[dict[str, Any], str]
    running: list["Running"] = field(default_factory=list)
    found: dict[str, Column] = field(default_factory=dict)

    def run(self) -> None:
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.at_once:
                self.running.append(Running(self.waiting.pop(0), *self.args))
            readable = wait([one.pipe for one in self.running], LOOK_EVERY_S)
            for one in [one for one in self.running if one.pipe in readable]:
                if column := one.heard(self.watch):
                    self.running.remove(one)
                    self.found[column.target] = column
                    self.watch.ended(column)
            self.watch.look()

    def stop(self) -> None:
        for one in self.running:
            one.kill()


class Running:
    """A target that is being checked, in a process group of its own, so that nothing of it outlives this one."""

    def __init__(self, target: str, search: dict[str, Any], temp: str) -> None:
        self.target = target
        self.pipe, theirs = Pipe(duplex=False)
        self.process = Process(target=work, args=(theirs, target, search, temp))
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def heard(self, watch: Watch) -> Column | None:
        """To call when the pipe is readable: the column once it is there."""
        try:
            what, *told = self.pipe.recv()
        except EOFError:
            self.kill()
            code = self.process.exitcode
            return Column(target=self.target, problem=f"its process ended early (exit code {code})")
        if what == "column":
            self.kill()
            return Column(target=self.target, **told[0])
        (watch.told if what == "told" else watch.progressed)(self.target, *told)
        return None

    def kill(self) -> None:
        assert self.process.pid, "started"
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(pipe: Connection, target: str, search: dict[str, Any], temp: str) -> None:
    """In the process of one target. Ctrl-C is the parent's to hear, stdout is its own, and it tidies `temp`."""
    os.setpgrp()
    with suppress(OSError):  # there may be no stderr
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    tempfile.tempdir = temp

    def tell(line: str) -> None:
        pipe.send(("told", line))

    def progress(engine: str, done: int, total: int) -> None:
        pipe.send(("progressed", done, total))

    try:
        found: dict[str, Any] = {"report": session.check(target, tell=tell, progress=progress, **search)}
    except CpbcgError as problem:
        found = {"problem": str(problem)}
    except Exception as problem:
        found = {"problem": f"{type(problem).__name__}: {problem}"}
    pipe.send(("column", found))
