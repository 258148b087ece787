"""One run: which groups are served, side by side where they can be, and what they add up to."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from cpbcg_ref import cases
from cpbcg_ref.checking.results import Result
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import REGISTRY
from gpu_conformance import elastic, traces, workloads
from gpu_conformance.arithmetic import EXACT, SMOOTH, Arithmetic
from gpu_conformance.group import Group, Inject
from gpu_conformance.model import Model, Shape
from gpu_conformance.processes import Failure, dies_with_parent
from gpu_conformance.work import Offer, Seen

IDS = tuple(name for name in REGISTRY if name.startswith(("data.", "agree.")) or name == "capacity.no-overflow")
SIZES = {"lockstep": (2, 4, 8), "gloo": (2, 4)}
SLOTS, MOST_TOKENS, CONTEXT = 2048, 1500, 512
PROMPTS = (150, 70, 333)  # prefilled in chunks


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was asked for. cp_sizes and driver "auto": what this machine can do."""

    driver: str = "auto"
    cp_sizes: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()
    batches: int = 50
    seed: int = 0
    trace: Path | None = None
    plant: str = ""
    inject: Inject | None = None
    timeout_s: float = 20.0
    dtype: torch.dtype = torch.float64


@dataclass(frozen=True, kw_only=True)
class Served:
    """What came of one group: a `Seen` per rank, or the rank that failed."""

    driver: str
    cp_size: int
    arithmetic: str
    seconds: float
    seen: tuple[Seen, ...] = ()
    failure: dict[str, Any] | None = None


def groups(asked: Asked) -> list[Group]:
    """Without a GPU: every size in step, in both arithmetics, and small ones over gloo."""
    if elastic.launched():
        return [group(asked, launched_driver(asked), elastic.ranks(), SMOOTH)]
    made = []
    for driver, cp_size in pairs(asked):
        for arithmetic in (SMOOTH, EXACT) if driver == "lockstep" else (SMOOTH,):
            made.append(group(asked, driver, cp_size, arithmetic))
    check_inject(asked, made)
    return made


def launched_driver(asked: Asked) -> str:
    """Under torchrun: over nccl or gloo, one group of all ranks."""
    if asked.driver == "lockstep" or asked.cp_sizes not in ((), (elastic.ranks(),)):
        raise InvalidInput(f"torchrun started {elastic.ranks()} ranks: leave out --cp-size and use nccl or gloo")
    gpus = torch.cuda.device_count()
    if asked.driver == "nccl" and not gpus:
        raise InvalidInput("driver nccl needs a GPU per rank, this machine has none")
    return "nccl" if gpus and asked.driver != "gloo" else "gloo"


def pairs(asked: Asked) -> list[tuple[str, int]]:
    """Drivers and group sizes. Raises InvalidInput for a driver that cannot run here, with the reason."""
    gpus = torch.cuda.device_count()
    if asked.driver == "nccl":
        sizes = asked.cp_sizes or ((gpus,) if gpus > 1 else ())
        if not sizes or max(sizes) > gpus:
            raise InvalidInput(f"driver nccl needs a GPU per rank: {max(sizes, default=2)} ranks, {gpus} GPUs here")
        return [("nccl", size) for size in sizes]
    if asked.driver != "auto":
        return [(asked.driver, size) for size in asked.cp_sizes or SIZES[asked.driver]]
    lockstep = [("lockstep", size) for size in asked.cp_sizes or SIZES["lockstep"]]
    if gpus:
        return lockstep + [("nccl", size) for size in asked.cp_sizes or (2, 4, 8) if size <= gpus]
    return lockstep + [("gloo", size) for size in asked.cp_sizes or SIZES["gloo"]]


def group(asked: Asked, driver: str, cp_size: int, arithmetic: Arithmetic) -> Group:
    ladder = asked.buckets or tuple(cp_size * rows for rows in (16, 24, 32, 48))
    context = max(CONTEXT, *ladder) if asked.buckets else CONTEXT
    server = cases.Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=context)
    on_gpu = driver == "nccl" or (driver == "lockstep" and torch.cuda.device_count())
    model = Model(
        shape=Shape(positions=context), arithmetic=arithmetic, dtype=asked.dtype, device="cuda" if on_gpu else "cpu"
    )
    slots = max(SLOTS, 4 * max(ladder))
    told = {"plant": asked.plant, "inject": asked.inject, "timeout_s": asked.timeout_s, "slots": slots}
    return Group(driver=driver, server=server, model=model, offers=offers(asked, server, slots), **told)


def offers(asked: Asked, server: cases.Server, slots: int) -> tuple[Offer, ...]:
    """`batches` of edges or of the trace, and the fixed sequences."""
    requests, most = workloads.Requests(slots=slots), slots - 500
    if asked.trace:
        ladder = server.capture_num_tokens
        prompts = traces.prompts(asked.trace)
        sizes = list(workloads.packed(prompts, most=ladder[-1], longest=server.context_length))[: asked.batches]
        if not sizes:
            largest = f"the largest bucket, {ladder[-1]} tokens"
            raise InvalidInput(f"{asked.trace}: no prompt fits {largest}: pass larger --buckets")
        return tuple(map(requests.offer, sizes))
    edges = workloads.edges(server, batches=asked.batches, seed=asked.seed, most=most)
    sizes = [*edges, *workloads.big_small_big(server), *workloads.golden(server)]
    chunk = server.capture_num_tokens[0] // len(PROMPTS)
    return (*map(requests.offer, sizes), *requests.chunked(PROMPTS, chunk=chunk))


def check_inject(asked: Asked, made: Sequence[Group]) -> None:
    """Raises InvalidInput for a misfortune that no group would see, or that would end this very process."""
    if not (inject := asked.inject):
        return
    ranks, batches = min(one.server.cp_size for one in made), min(len(one.offers) for one in made)
    if inject.rank >= ranks or inject.batch >= batches:
        raise InvalidInput(f"inject {inject}: a group has the ranks 0 to {ranks - 1} and batches 0 to {batches - 1}")
    if inject.kind not in ("bucket", "skip") and any(one.driver == "lockstep" for one in made):
        raise InvalidInput(f"inject {inject.kind}: in lockstep all ranks are one process; use --driver gloo or nccl")


def serve(group: Group, engine: Any) -> Served:
    torch.set_num_threads(1)
    began = time.perf_counter()
    told = {"driver": group.driver, "cp_size": group.server.cp_size, "arithmetic": group.model.arithmetic.name}
    try:
        seen = tuple(elastic.serve(group, engine) if elastic.launched() else group.serve(engine))
    except Failure as failure:
        blame = {"rank": failure.rank, "kind": failure.kind, "last_operation": failure.last_operation}
        blame |= {"detail": failure.detail, "stacks": failure.stacks}
        return Served(**told, seconds=time.perf_counter() - began, failure=blame)
    return Served(**told, seconds=time.perf_counter() - began, seen=seen)


_run: tuple[Sequence[Group], Any] = ((), None)  # what forked workers find


def serve_all(served: Sequence[Group], engine: Any, *, progress: Callable[[Served, int], None]) -> list[Served]:
    """All groups, as many at a time as there are cores; ranks with processes of their own one group after the other."""
    global _run
    torch.set_num_threads(1)  # a parent that computed with several threads must not fork
    if elastic.launched():
        return [serve(one, engine) for one in served]
    _run = (served, engine)
    fork = get_context("fork")
    done: list[Served] = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=fork, initializer=dies_with_parent) as pool:
        jobs = {pool.submit(serve_number, number): number for number in range(len(served))}
        for job in as_completed(jobs):
            done.append(job.result())
            progress(done[-1], len(served))
    return sorted(done, key=lambda one: (one.driver != "lockstep", one.cp_size, one.arithmetic != "smooth"))


def serve_number(number: int) -> Served:
    served, engine = _run
    return serve(served[number], engine)


def results(done: Sequence[Served]) -> tuple[Result, ...]:
    """One result per id: the first violation of any group, or how many batches were judged on every rank."""
    return tuple(result(name, done) for name in IDS)


def result(name: str, done: Sequence[Served]) -> Result:
    found = [
        (one, finding) for one in done for seen in one.seen for finding in seen.findings if finding.invariant == name
    ]
    judged = sum(max((seen.judged.get(name, 0) for seen in one.seen), default=0) for one in done)
    told: dict[str, Any] = {"invariant": name, "level": REGISTRY[name].level, "examples": judged}
    if found:
        one, finding = found[0]
        message = f"{one.driver}, cp {one.cp_size}, {one.arithmetic}: {finding.sentence}"
        return Result(**told, outcome="fail", message=message)
    if not judged:
        return Result(**told, outcome="unwitnessed", message="no batch was judged by it")
    return Result(**told, outcome="pass")
