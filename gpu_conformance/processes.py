"""A process per rank over gloo, watched by their parent: whoever fails is named, and nobody is left behind.

What a rank runs is the same generator as in lockstep; here each collective that it yields is a real one.
"""

import ctypes
import faulthandler
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gpu_conformance import collectives
from gpu_conformance.model import AllGather
from gpu_conformance.status import Status

LATER_S = 1.0  # how long after the first death others may die of it
PR_SET_PDEATHSIG = 1
Work = Callable[[int], Generator[AllGather, torch.Tensor, Any]]  # of a rank


@dataclass(frozen=True, kw_only=True)
class Failure(Exception):
    """A rank failed, not the engine. stacks: of the ranks that still lived."""

    rank: int
    kind: str  # killed, stopped, looping, raised
    last_operation: str
    detail: str
    stacks: dict[int, str]


def run(work: Work, *, ranks: int, timeout_s: float, encode: Callable[[Any], Any]) -> list[Any]:
    """What each rank returned, as `encode` made it JSON. Raises Failure; no process outlives this call."""
    with TemporaryDirectory(prefix="cpbcg-ranks-") as folder:
        room = Path(folder)
        status = Status(room / "status", ranks)
        spawn = multiprocessing.get_context("fork")
        group = [
            spawn.Process(target=rank_main, args=(work, rank, ranks, room, timeout_s, encode)) for rank in range(ranks)
        ]
        try:
            for process in group:
                process.start()
            watch(group, status, room, timeout_s)
            return [json.loads((room / f"result-{rank}").read_text()) for rank in range(ranks)]
        finally:
            for process in group:
                end(process)
            status.close()


def end(process: Any) -> None:
    if process.pid:
        process.kill()
        process.join()


def watch(group: list[Any], status: Status, room: Path, timeout_s: float) -> None:
    """Until all have ended well; Failure at the first death, or when nobody begins anything for `timeout_s`."""
    while any(process.is_alive() for process in group):
        wait([process.sentinel for process in group if process.is_alive()], timeout=0.1)
        if dead := [rank for rank, process in enumerate(group) if process.exitcode not in (None, 0)]:
            raise blamed(dead, group, status, room)
        latest = max(one.since for one in status.all())
        if latest and time.time() - latest > timeout_s:
            raise stuck(group, status, room)
    if dead := [rank for rank, process in enumerate(group) if process.exitcode != 0]:
        raise blamed(dead, group, status, room)


def blamed(dead: list[int], group: list[Any], status: Status, room: Path) -> Failure:
    """The rank that died of itself: killed, or raising outside a collective; others die of the broken connection."""
    time.sleep(LATER_S)
    dead = [rank for rank, process in enumerate(group) if process.exitcode not in (None, 0)]
    killed = [rank for rank in dead if group[rank].exitcode < 0]
    reports = {rank: json.loads(path.read_text()) for rank in dead if (path := room / f"raised-{rank}").exists()}
    own = [rank for rank, report in reports.items() if not report["in_collective"]]
    rank = min(killed or own or dead, key=lambda r: status.of(r).since)
    if rank in killed:
        kind, detail = "killed", f"signal {-group[rank].exitcode}"
    else:
        kind, detail = "raised", reports.get(rank, {}).get("text", f"exit code {group[rank].exitcode}")
    return failure(rank, kind, detail, group, status, room)


def stuck(group: list[Any], status: Status, room: Path) -> Failure:
    """The rank that has begun least: the others wait for it in a collective."""
    rank = min(range(len(group)), key=lambda r: status.of(r).operations)
    stopped = state(group[rank].pid) == "T"
    return failure(rank, "stopped" if stopped else "looping", "no progress", group, status, room)


def failure(rank: int, kind: str, detail: str, group: list[Any], status: Status, room: Path) -> Failure:
    stacks = {r: stack(p, room / f"stack-{r}") for r, p in enumerate(group) if p.is_alive()}
    return Failure(rank=rank, kind=kind, last_operation=status.of(rank).last, detail=detail, stacks=stacks)


def state(pid: int) -> str:
    """The state letter of a process: T is stopped."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "?"


def stack(process: Any, written: Path) -> str:
    """Ask a living rank where it is; a stopped one cannot tell."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGUSR1)
    time.sleep(0.2)
    return written.read_text() if written.exists() else ""


# in the rank's process ---------------------------------------------------------------------------------------------


def rank_main(work: Work, rank: int, ranks: int, room: Path, timeout_s: float, encode: Callable[[Any], Any]) -> None:
    dies_with_parent()
    log = (room / f"stack-{rank}").open("w")
    faulthandler.register(signal.SIGUSR1, file=log)
    status = Status(room / "status", ranks)
    try:
        tell = partial(status.begin, rank, clock=time.time)
        tell("joining the group")
        collectives.join(rank, ranks, f"file://{room / 'store'}", timeout_s=timeout_s + 60)
        result = collectives.drive(work(rank), tell)
        (room / f"result-{rank}").write_text(json.dumps(encode(result)))
    except BaseException as problem:
        told = {"text": f"{type(problem).__name__}: {problem}", "trace": traceback.format_exc()}
        told["in_collective"] = isinstance(problem, collectives.Broken)
        (room / f"raised-{rank}").write_text(json.dumps(told))
        os._exit(1)
    os._exit(0)  # nothing of the parent's is torn down in a fork


def dies_with_parent() -> None:
    """On Linux the kernel kills this process when its parent dies."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
