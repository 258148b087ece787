"""One run: its groups served side by side where they can be."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from cpbcg_ref.errors import CpbcgError
from gpu_conformance import elastic, processes
from gpu_conformance.failure import Failure
from gpu_conformance.group import Group
from gpu_conformance.processes import dies_with_parent
from gpu_conformance.scenarios import Asked as Asked
from gpu_conformance.scenarios import groups as groups
from gpu_conformance.status import Status
from gpu_conformance.verdicts import Served
from gpu_conformance.verdicts import results as results

PROGRESS_S = 0.25


def serve(group: Group, engine: Any, *, tell: Callable[[str], None] = lambda doing: None) -> Served:
    torch.set_num_threads(1)
    began = time.perf_counter()
    try:
        seen = tuple(elastic.serve(group, engine) if elastic.launched() else group.serve(engine, tell=tell))
    except Failure as failure:
        blame = {"rank": failure.rank, "kind": failure.kind, "last_operation": failure.last_operation}
        blame |= {"detail": failure.detail, "stacks": failure.stacks}
        return Served(group=group, seconds=time.perf_counter() - began, failure=blame)
    return Served(group=group, seconds=time.perf_counter() - began, seen=seen)


_run: tuple[Sequence[Group], Any, Status] = ((), None, Status(1))  # what forked workers find


def serve_all(served: Sequence[Group], engine: Any, *, progress: Callable[[str], None]) -> list[Served]:
    """All groups, in their order. progress: is told again and again how far they are."""
    global _run
    torch.set_num_threads(1)  # a parent that computed with several threads must not fork
    if elastic.launched() or processes.unavailable():
        return [serve(one, engine) for one in served]
    _run = (served, engine, Status(len(served)))
    done: dict[int, Served] = {}
    for together in side_by_side(served):
        workers, fork = min(cores(), len(together)), get_context("fork")
        with ProcessPoolExecutor(workers, mp_context=fork, initializer=dies_with_parent) as pool:
            jobs = {pool.submit(serve_number, number): number for number in together}
            for job in completed(jobs, meanwhile=lambda: progress(how_far(done))):
                number = jobs[job]
                done[number] = Served(group=served[number], **result_of(job))
    return [done[number] for number in range(len(served))]


def completed(jobs: Iterable[Future[Any]], *, meanwhile: Callable[[], None]) -> Iterator[Future[Any]]:
    pending = set(jobs)
    while pending:
        ended, pending = wait(pending, timeout=PROGRESS_S, return_when=FIRST_COMPLETED)
        yield from ended
        meanwhile()


def how_far(done: Collection[int]) -> str:
    """A line per group that runs now."""
    served, _, status = _run
    running = [(one.name, status.of(number).last) for number, one in enumerate(served) if number not in done]
    lines = [f"{name}: {doing}" for name, doing in running if doing]
    return "\n".join([f"{len(done)} of {len(served)} groups done", *lines])


def side_by_side(served: Sequence[Group]) -> list[list[int]]:
    """Which groups run at a time: on CPU all, those that take longest first, as many as there are cores.

    On GPUs one after the other, each in a process of its own: one that has used CUDA must not fork its ranks.
    """
    if any(one.device != "cpu" for one in served):
        return [[number] for number in range(len(served))]
    return [sorted(range(len(served)), key=costliest_first)]


def cores() -> int:
    """That this process may use; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0))


def result_of(job: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return job.result()
    except BrokenProcessPool as problem:
        raise CpbcgError("a process that serves groups was killed, as happens when memory runs out") from problem


def costliest_first(number: int) -> int:
    group = _run[0][number]
    return -len(group.offers) * group.server.cp_size * group.server.capture_num_tokens[-1]


def serve_number(number: int) -> dict[str, Any]:
    """Without the group, which the parent has: its tensors would be sent through shared memory, by a thread."""
    served, engine, status = _run
    told = vars(serve(served[number], engine, tell=partial(status.begin, number, clock=time.monotonic)))
    return {name: value for name, value in told.items() if name != "group"}
