"""One run: its groups served side by side where they can be."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
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
from gpu_conformance.verdicts import Served
from gpu_conformance.verdicts import results as results


def serve(group: Group, engine: Any) -> Served:
    torch.set_num_threads(1)
    began = time.perf_counter()
    try:
        seen = tuple(elastic.serve(group, engine) if elastic.launched() else group.serve(engine))
    except Failure as failure:
        blame = {"rank": failure.rank, "kind": failure.kind, "last_operation": failure.last_operation}
        blame |= {"detail": failure.detail, "stacks": failure.stacks}
        return Served(group=group, seconds=time.perf_counter() - began, failure=blame)
    return Served(group=group, seconds=time.perf_counter() - began, seen=seen)


_run: tuple[Sequence[Group], Any] = ((), None)  # what forked workers find


def serve_all(served: Sequence[Group], engine: Any, *, progress: Callable[[Served, int], None]) -> list[Served]:
    """All groups, in their order."""
    global _run
    torch.set_num_threads(1)  # a parent that computed with several threads must not fork
    if elastic.launched() or processes.unavailable():
        return [serve(one, engine) for one in served]
    _run = (served, engine)
    done: dict[int, Served] = {}
    for together in side_by_side(served):
        with ProcessPoolExecutor(cores(), mp_context=get_context("fork"), initializer=dies_with_parent) as pool:
            jobs = {pool.submit(serve_number, number): number for number in together}
            for job in as_completed(jobs):
                number = jobs[job]
                done[number] = Served(group=served[number], **result_of(job))
                progress(done[number], len(served))
    return [done[number] for number in range(len(served))]


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
    served, engine = _run
    told = vars(serve(served[number], engine))
    return {name: value for name, value in told.items() if name != "group"}
