"""Which groups of ranks a run serves: drivers and sizes that this machine can do, and what each is offered."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cpbcg_ref import capture_requests, cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.errors import InvalidInput, TargetError
from gpu_conformance import elastic, processes, traces, workloads
from gpu_conformance.arithmetic import EXACT, SMOOTH, Arithmetic
from gpu_conformance.group import Group, Inject
from gpu_conformance.model import Model, Shape
from gpu_conformance.work import Offer

ARITHMETICS = {"smooth": (SMOOTH,), "exact": (EXACT,), "both": (SMOOTH, EXACT)}
WORKLOADS = ("edges", "gqa", "golden")  # trace is the one that a file brings
SIZES = {"lockstep": (2, 4, 8), "gloo": (2, 4)}
NAMED_SIZE = 4  # gqa and golden are about groups of 4
CONTEXT, TRACE_CONTEXT = 512, 1024
LEAST_SLOTS = 1024
SILENT: Callable[[str], None] = lambda sentence: None  # noqa: E731


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was asked for. Empty cp_sizes, buckets and driver "auto": what this machine can do."""

    driver: str = "auto"
    cp_sizes: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()
    context_length: int | None = None
    workload: tuple[str, ...] = ("edges",)
    arithmetic: str = "both"
    batches: int = 30
    seed: int = 0
    trace: Path | None = None
    plant: str = ""
    inject: Inject | None = None
    timeout_s: float = 20.0
    dtype: torch.dtype = torch.float64

    @property
    def offered(self) -> tuple[str, ...]:
        return ("trace",) if self.trace else self.workload


def groups(asked: Asked, contract: Contract | None = None, *, tell: Callable[[str], None] = SILENT) -> list[Group]:
    """Without a GPU: every size in step, in both arithmetics, and small ones over gloo.

    Raises InvalidInput for what cannot run here, TargetError for an engine that captures no zigzag graphs.
    """
    contract = contract or Contract()
    if "zigzag" not in contract.graph_strategies:
        raise TargetError("this engine captures no graphs for zigzag: there is nothing to replay")
    prompts = trace_prompts(asked, tell) if asked.trace else ()
    made = [
        group(asked, contract, driver, cp_size, arithmetic, workload, prompts)
        for driver, cp_size in allowed(asked, contract)
        for workload in brought(asked, driver, cp_size)
        for arithmetic in arithmetics(asked, driver, workload)
    ]
    check_inject(asked, made)
    return made


def arithmetics(asked: Asked, driver: str, workload: str) -> tuple[Arithmetic, ...]:
    """Of both: two in step; one over processes, for between collectives they compute the same; the bits of golden."""
    if asked.arithmetic != "both" or (driver == "lockstep" and workload != "golden"):
        return ARITHMETICS[asked.arithmetic]
    return (EXACT,) if workload == "golden" else (SMOOTH,)


def brought(asked: Asked, driver: str, cp_size: int) -> list[str]:
    """The workloads of one group: of several, those that it is made for."""
    if len(asked.offered) == 1:
        return list(asked.offered)
    if elastic.launched() or driver == "gloo" or cp_size != NAMED_SIZE:
        return ["edges"]
    return [name for name in asked.offered if not (name == "golden" and asked.buckets)]


def launched_driver(asked: Asked) -> str:
    """Under torchrun: over nccl or gloo, one group of all ranks."""
    if asked.driver == "lockstep" or asked.cp_sizes not in ((), (elastic.ranks(),)):
        raise InvalidInput(f"torchrun started {elastic.ranks()} ranks: leave out --cp-size and use nccl or gloo")
    gpus, here = torch.cuda.device_count(), elastic.ranks_here()
    if asked.driver == "nccl" and gpus < here:
        raise InvalidInput(f"driver nccl needs a GPU per rank: {here} ranks on this machine, {gpus} GPUs")
    return "nccl" if gpus >= here and asked.driver != "gloo" else "gloo"


def allowed(asked: Asked, contract: Contract) -> list[tuple[str, int]]:
    """Drivers and sizes that the engine supports; one that was asked for and is not is refused."""
    sizes = [size for size in contract.cp_sizes if size > 1]
    wanted = (elastic.ranks(),) if elastic.launched() else asked.cp_sizes
    if wrong := [size for size in wanted if size not in sizes]:
        raise InvalidInput(f"cp size {wrong[0]}: this engine supports {', '.join(map(str, sizes)) or 'none above 1'}")
    if elastic.launched():
        return [(launched_driver(asked), elastic.ranks())]
    if not (found := [pair for pair in pairs(asked) if pair[1] in sizes]):
        supported = ", ".join(map(str, sizes)) or "none above 1"
        raise InvalidInput(f"no group to run: this engine supports the cp sizes {supported}; pass --cp-size")
    return found


def pairs(asked: Asked) -> list[tuple[str, int]]:
    """Drivers and group sizes. Raises InvalidInput for a driver that cannot run here, with the reason."""
    gpus = torch.cuda.device_count()
    if asked.driver in ("gloo", "nccl") and (reason := processes.unavailable()):
        raise InvalidInput(f"driver {asked.driver} cannot run here: {reason}")
    if asked.driver == "nccl":
        sizes = asked.cp_sizes or ((gpus,) if gpus > 1 else ())
        if not sizes or max(sizes) > gpus:
            raise InvalidInput(f"driver nccl needs a GPU per rank: {max(sizes, default=2)} ranks, {gpus} GPUs here")
        return [("nccl", size) for size in sizes]
    if asked.driver != "auto":
        default = (NAMED_SIZE,) if "edges" not in asked.offered and not asked.trace else SIZES[asked.driver]
        return [(asked.driver, size) for size in asked.cp_sizes or default]
    lockstep = [("lockstep", size) for size in asked.cp_sizes or SIZES["lockstep"]]
    if "edges" not in asked.offered and not asked.trace:
        return lockstep if asked.cp_sizes else [("lockstep", NAMED_SIZE)]
    if gpus and not processes.unavailable():
        return lockstep + [("nccl", size) for size in asked.cp_sizes or SIZES["lockstep"] if size <= gpus]
    forked = () if processes.unavailable() else asked.cp_sizes or SIZES["gloo"]
    return lockstep + [("gloo", size) for size in forked]


def server_of(asked: Asked, contract: Contract, cp_size: int, workload: str) -> cases.Server:
    """The ladder as the engine would capture it. Raises InvalidInput for an asked bucket that cannot be captured."""
    unit = contract.ladder * cp_size or 1
    default = workloads.GOLDEN_LADDER if workload == "golden" else tuple(cp_size * rows for rows in (16, 24, 32, 48))
    ladder = tuple(sorted({-(-bucket // unit) * unit for bucket in asked.buckets or default}))
    usual = {"trace": TRACE_CONTEXT, "golden": workloads.GOLDEN_CONTEXT}.get(workload, CONTEXT)
    context = asked.context_length or (max(usual, *ladder) if asked.buckets else usual)
    for bucket in ladder:
        if not capture_requests(bucket, cp_size=cp_size, context_length=context):
            rule = f"no requests of {2 * cp_size} to {context} tokens sum to it; pass --buckets or --context-length"
            raise InvalidInput(f"bucket {bucket} cannot be captured with cp size {cp_size}: {rule}")
    return cases.Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=context)


def group(
    asked: Asked,
    contract: Contract,
    driver: str,
    cp_size: int,
    arithmetic: Arithmetic,
    workload: str,
    prompts: Iterable[int],
) -> Group:
    server = server_of(asked, contract, cp_size, workload)
    largest, context = server.capture_num_tokens[-1], server.context_length
    device = "cuda" if driver == "nccl" or (driver == "lockstep" and torch.cuda.device_count()) else "cpu"
    shape = Shape(positions=context, **({"heads": 8} if workload == "gqa" else {}))
    model = Model(shape=shape, arithmetic=arithmetic, dtype=asked.dtype)
    slots = max(LEAST_SLOTS, 3 * largest, largest + 2 * context + 1)
    slots = workloads.GOLDEN_SLOTS if workload == "golden" and not asked.buckets else slots
    told: dict[str, Any] = {"plant": asked.plant, "inject": asked.inject, "timeout_s": asked.timeout_s}
    told |= {"driver": driver, "workload": workload, "server": server, "model": model, "device": device, "slots": slots}
    if not (offered := offers(asked, workload, server, slots, prompts)):
        raise InvalidInput(f"no batch of the workload {workload} fits bucket {largest}, the largest: pass --buckets")
    return Group(**told, offers=offered)


def offers(asked: Asked, workload: str, server: cases.Server, slots: int, prompts: Iterable[int]) -> tuple[Offer, ...]:
    """What one group is offered: the drawn batches are cut to `batches`, the named ones are all there."""
    requests = workloads.Requests(slots=slots)
    if workload == "trace":
        return tuple(requests.prefilled(prompts, budget=server.capture_num_tokens[-1], batches=asked.batches))
    if workload == "golden":
        return tuple(map(requests.offer, workloads.golden(server)))
    prompts = [min(prompt, server.context_length) for prompt in workloads.PROMPTS]
    chunked = requests.chunked(prompts, chunk=server.capture_num_tokens[0] // len(prompts))
    if workload == "gqa":
        return (*map(requests.offer, workloads.several_with_prefixes(server)), *chunked)
    drawn = workloads.edges(server, batches=asked.batches, seed=asked.seed, most=slots - 1)
    sizes = (*drawn, *workloads.fixed(server), *workloads.big_small_big(server))
    return (*map(requests.offer, sizes), *chunked)


def trace_prompts(asked: Asked, tell: Callable[[str], None]) -> list[int]:
    """Prompts that the context holds. Raises InvalidInput if none is."""
    assert asked.trace
    context = asked.context_length or max(TRACE_CONTEXT, *asked.buckets, 0)
    found = list(traces.prompts(asked.trace))
    if not (fitting := [prompt for prompt in found if prompt <= context]):
        raise InvalidInput(f"{asked.trace}: no prompt fits the context of {context} tokens: pass --context-length")
    tell(f"{asked.trace.name}: {len(found) - len(fitting)} of {len(found)} prompts are left out: over {context} tokens")
    return fitting


def check_inject(asked: Asked, made: list[Group]) -> None:
    """Raises InvalidInput for a misfortune that no group would see, or that would end this very process."""
    if not (inject := asked.inject):
        return
    ranks, batches = min(one.server.cp_size for one in made), min(len(one.offers) for one in made)
    if inject.rank >= ranks or inject.batch >= batches:
        where = f"--inject {inject.kind}:{inject.rank}@{inject.batch}"
        raise InvalidInput(f"{where}: a group has the ranks 0 to {ranks - 1} and the batches 0 to {batches - 1}")
    if inject.kind not in ("bucket", "skip") and any(one.driver == "lockstep" for one in made):
        raise InvalidInput(f"--inject {inject.kind}: in lockstep all ranks are one process; add --driver gloo or nccl")
