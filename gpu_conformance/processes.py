"""A process per rank, watched by their parent: whoever fails is named, and nobody and nothing is left behind.

What a rank runs is the same generator as in lockstep; here each collective that it yields is a real one. All that ranks
and parent share is memory without a name, so that not even a parent killed by SIGKILL leaves a file; its ranks the
kernel ends with it.
"""

import ctypes
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu_conformance import collectives
from gpu_conformance.failure import Failure, Remains, blamed, stuck, trace
from gpu_conformance.model import AllGather
from gpu_conformance.status import Status

__all__ = ["Failure", "dies_with_parent", "run", "unavailable"]
LATER_S = 1.0  # how long after the first death others may die of it
ANSWER_S = 2.0  # how long a living rank may take to say where it is
UNKILLABLE_S = 10.0  # a rank that the kernel cannot end, such as one in a driver, is not waited for longer
PR_SET_PDEATHSIG = 1
Work = Callable[[int], Generator[AllGather, torch.Tensor, Any]]  # of a rank


def unavailable() -> str:
    """Why ranks cannot have processes of their own here; "" if they can."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return "ranks are forked and watched through /proc, which only Linux has: use --driver lockstep"
    return "" if dist.is_available() and dist.is_gloo_available() else "this torch has no gloo: use --driver lockstep"


class Room:
    """What ranks and their parent share."""

    def __init__(self, ranks: int) -> None:
        self.status, self.store = Status(ranks), os.memfd_create("store")
        self.told = [os.memfd_create(f"told-{rank}") for rank in range(ranks)]
        self.stacks = [os.memfd_create(f"stack-{rank}") for rank in range(ranks)]

    def close(self) -> None:
        self.status.close()
        for file in (self.store, *self.told, *self.stacks):
            os.close(file)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Forked ranks and the room that they share."""

    members: list[Any]
    room: Room

    def remains(self, rank: int) -> Remains:
        code = self.members[rank].exitcode
        pid = self.members[rank].pid
        told = {"exit_code": code, "state": state(pid) if code is None else "", "ticks": ticks(pid)}
        return Remains(rank=rank, doing=self.room.status.of(rank), told=told_by(self.room.told[rank]), **told)

    def all(self) -> list[Remains]:
        return [self.remains(rank) for rank in range(len(self.members))]

    def dead(self) -> bool:
        """Has a rank ended otherwise than with its result."""
        ended = [rank for rank, one in enumerate(self.members) if one.exitcode is not None]
        return not all(self.remains(rank).ended_well for rank in ended)

    def living(self) -> list[Any]:
        return [one for one in self.members if one.is_alive()]


def run(
    work: Work,
    *,
    ranks: int,
    timeout_s: float,
    encode: Callable[[Any], Any],
    on_gpus: bool = False,
    tell: Callable[[str], None] = lambda doing: None,
) -> list[Any]:
    """What each rank returned, as `encode` made it JSON. Raises Failure; no process outlives this call.

    on_gpus: rank N takes GPU N. Then this process must not have used one: CUDA does not survive a fork.
    """
    room, fork = Room(ranks), multiprocessing.get_context("fork")
    args = [(work, rank, room, encode) for rank in range(ranks)]
    join = {"ranks": ranks, "timeout_s": timeout_s + 60}  # by then the parent has blamed somebody
    joining = [join | {"gpu": rank} if on_gpus else join for rank in range(ranks)]
    members = [
        fork.Process(target=rank_main, args=each, kwargs=how, name=f"rank {rank}")
        for rank, (each, how) in enumerate(zip(args, joining, strict=True))
    ]
    group = Group(members=members, room=room)
    try:
        for member in members:
            member.start()
        watch(group, timeout_s, tell)
        return [one.told["result"] for one in group.all()]
    finally:
        end([member for member in members if member.pid])
        room.close()


def end(members: list[Any]) -> None:
    for member in members:
        member.kill()
    for member in members:
        member.join(UNKILLABLE_S)


def watch(group: Group, timeout_s: float, tell: Callable[[str], None]) -> None:
    """Until all have ended well; Failure at the first death, or when nobody begins anything for `timeout_s`.

    tell: is told what the first rank is doing.
    """
    began = time.monotonic()
    while living := group.living():
        wait([one.sentinel for one in living], timeout=0.1)
        tell(group.room.status.of(0).last)
        if group.dead():
            wait_for_all(group, LATER_S)
            raise blamed(group.all(), stacks(group))
        latest = max(began, *(one.since for one in group.room.status.all()))
        if time.monotonic() - latest > timeout_s:
            remains = group.all()  # before they are asked: that wakes them
            raise stuck(remains, stacks(group))
    if group.dead():
        raise blamed(group.all(), stacks(group))


def wait_for_all(group: Group, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (living := group.living()) and time.monotonic() < deadline:
        wait([one.sentinel for one in living], timeout=0.1)


def state(pid: int) -> str:
    """The state letter of a process: T is stopped, R runs."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "?"


def ticks(pid: int) -> int:
    """Of processor time that a process has used itself."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
    return 0


def stacks(group: Group) -> dict[int, str]:
    """Ask the living where they are; a stopped rank cannot tell. Of the dead, what a crash left."""
    asked = {rank: one for rank, one in enumerate(group.members) if one.is_alive()}
    awake = [rank for rank, one in asked.items() if state(one.pid) != "T"]
    for rank in awake:
        with suppress(ProcessLookupError):
            os.kill(asked[rank].pid, signal.SIGUSR1)
    deadline, before, now = time.monotonic() + ANSWER_S, None, answers(group)
    while time.monotonic() < deadline and (now != before or not all(now[rank] for rank in awake)):
        time.sleep(0.1)
        before, now = now, answers(group)
    return {rank: text for rank, text in now.items() if text or rank in asked}


def answers(group: Group) -> dict[int, str]:
    return {rank: written(file).decode(errors="replace") for rank, file in enumerate(group.room.stacks)}


def written(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


def told_by(file: int) -> dict[str, Any]:
    """What a rank wrote; nothing if that cannot be read."""
    with suppress(ValueError):
        if isinstance(told := json.loads(written(file)), dict):
            return told
    return {}


# in the rank's process ---------------------------------------------------------------------------------------------


def rank_main(work: Work, rank: int, room: Room, encode: Callable[[Any], Any], **joining: Any) -> None:
    import resource  # Windows has none, and runs lockstep

    dies_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, and it ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable(file=room.stacks[rank])  # of a crash in C++
    faulthandler.register(signal.SIGUSR1, file=room.stacks[rank])
    try:
        tell = partial(room.status.begin, rank, clock=time.monotonic)
        tell("joining the group")
        collectives.join(rank, store=f"file:///proc/self/fd/{room.store}", **joining)
        told = {"result": encode(collectives.drive(work(rank), tell))}
        text = json.dumps(told)
    except BaseException as problem:
        told = {"raised": f"{type(problem).__name__}: {problem}", "trace": trace(problem), "when": time.monotonic()}
        text = json.dumps(told | {"in_collective": isinstance(problem, collectives.Broken)})
    os.pwrite(room.told[rank], text.encode(), 0)
    os._exit("raised" in told)  # nothing of the parent's is torn down in a fork


def dies_with_parent() -> None:
    """The kernel kills this process when its parent dies; if it died before it was told so, nothing is left to do."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent and os.getppid() != parent.pid:
        os._exit(1)
