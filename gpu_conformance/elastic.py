"""Under torchrun this process is one rank of a group that may span nodes: no parent of ours watches it.

Each rank says in the store of torchrun what it is doing. When the group breaks, the living wait for each other's word:
whoever stays silent is to blame. Where it lives on this machine it is asked for its stack and ended, since torchrun
would give it half a minute. Tried on one node with gloo; several nodes use the same calls and were not tried.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu_conformance import collectives, failure
from gpu_conformance.group import Group, seen_of
from gpu_conformance.processes import dies_with_parent, state
from gpu_conformance.status import Doing
from gpu_conformance.work import Seen

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WORD_S = 2.0  # how long the living wait for each other's word
STACK_S = 0.3
GONE = "?ZX"  # letters of a process that is none any more


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    return all(name in environment for name in NEEDED)


def rank() -> int:
    return int(os.environ["RANK"])


def ranks() -> int:
    return int(os.environ["WORLD_SIZE"])


def ranks_here() -> int:
    """Those on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks()))


def serve(group: Group, engine: Any) -> list[Seen]:
    """What every rank saw, on every rank. Raises Failure on every rank that lives."""
    dies_with_parent()
    faulthandler.register(signal.SIGUSR1)  # to stderr, which torchrun hands on
    signal.signal(signal.SIGTERM, others_failed)
    board, started = Board(), group.start(engine)
    try:
        board.join(group.timeout_s, gpu=int(os.environ["LOCAL_RANK"]) if group.on_gpus else None)
        mine = collectives.drive(group.rank(engine, started, rank()), board.tell)
        return [seen_of(json.loads(told)) for told in gathered(json.dumps(asdict(mine)))]
    except Exception as problem:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # time to report; torchrun means us too
        blamed = board.judged(problem)
        said = f"rank {blamed.rank} {blamed.kind} ({blamed.detail}), last operation: {blamed.last_operation}"
        print(f"INFRASTRUCTURE {said}, says rank {rank()}", file=sys.stderr, flush=True)
        raise blamed from problem


def others_failed(*_: Any) -> None:
    raise collectives.Broken("torchrun ends this rank, since another failed")


class Board:
    """What ranks tell each other through the store."""

    def __init__(self) -> None:
        self.doing = Doing()
        self.store: Any = None  # until it is found

    def join(self, timeout_s: float, *, gpu: int | None) -> None:
        try:
            self.store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout_s)))  # type: ignore[attr-defined]
        except (RuntimeError, ValueError) as problem:
            raise collectives.Broken(f"no store: {problem}") from problem
        self.put("at", {"host": socket.gethostname(), "pid": os.getpid()})
        self.tell("joining the group")
        store = dist.PrefixStore("group", self.store)  # type: ignore[attr-defined]
        collectives.join(rank(), ranks(), store, timeout_s=timeout_s, gpu=gpu)

    def tell(self, operation: str) -> None:
        """Every step counts; collectives are told to no one: they come too often."""
        self.doing = Doing(operations=self.doing.operations + 1, since=time.time(), last=operation)
        if not operation.startswith(collectives.GATHERING):
            self.put("doing", asdict(self.doing))

    def put(self, what: str, told: dict[str, Any]) -> None:
        if self.store:
            self.store.set(f"{what} {rank()}", json.dumps(told))

    def read(self, what: str, of: int) -> dict[str, Any]:
        """Nothing if it was never said or the store is gone."""
        with suppress(RuntimeError, ValueError):
            if self.store and self.store.check([key := f"{what} {of}"]):
                return dict(json.loads(self.store.get(key)))
        return {}

    def judged(self, problem: Exception) -> failure.Failure:
        told = {"raised": f"{type(problem).__name__}: {problem}", "trace": failure.trace(problem), "when": time.time()}
        told |= {"in_collective": isinstance(problem, collectives.Broken), "doing": asdict(self.doing)}
        with suppress(RuntimeError):
            self.put("told", told)
        group = self.words(WORD_S if told["in_collective"] else 0.0)  # the others learn of ours when we are gone
        group[rank()] = group[rank()] or told
        remains = [self.remains(one, word) for one, word in enumerate(group)]
        own = [one for one in remains if one.kind == "raised"]
        silent = [] if own else [one for one in remains if not one.told]
        blamed = failure.blamed(own or silent or remains, {})
        blamed.stacks = {one.rank: one.told["trace"] for one in remains if one.told}
        for one in silent:
            self.end(one.rank)
        return blamed

    def words(self, seconds: float) -> list[dict[str, Any]]:
        deadline = time.monotonic() + seconds
        while not all(told := [self.read("told", one) for one in range(ranks())]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return told

    def remains(self, one: int, told: dict[str, Any]) -> failure.Remains:
        """A silent rank of this machine stands somewhere or has ended; of another machine nothing is known."""
        doing = Doing(**(told.get("doing") or self.read("doing", one)))
        letter = state(int(at["pid"])) if (at := self.neighbour(one)) else "elsewhere"
        letter = "gone" if letter in GONE else letter
        return failure.Remains(rank=one, doing=doing, exit_code=1 if told else None, state=letter, told=told)

    def neighbour(self, one: int) -> dict[str, Any]:
        """Where a rank of this machine is; nothing for others."""
        at = self.read("at", one)
        return at if at.get("host") == socket.gethostname() else {}

    def end(self, one: int) -> None:
        """A silent neighbour, if it is still a child of the same torchrun."""
        pid = self.neighbour(one).get("pid", 0)
        if not pid or f"PPid:\t{os.getppid()}\n" not in status_of(pid):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
            time.sleep(STACK_S)
            os.kill(pid, signal.SIGKILL)


def status_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/status").read_text()
    return ""


def gathered(text: str) -> list[str]:
    """The text of every rank: lengths first, then bytes padded to the longest."""
    mine = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    sizes = collectives.all_gather(torch.tensor([[len(mine)]])).flatten().tolist()
    padded = torch.zeros((1, max(sizes)), dtype=torch.uint8)
    padded[0, : len(mine)] = mine
    rows = collectives.all_gather(padded)
    return [bytes(row[:size].tolist()).decode() for row, size in zip(rows, sizes, strict=True)]
