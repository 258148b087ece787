"""The collectives of a rank that has a process of its own, over gloo on CPU tensors and nccl on CUDA tensors."""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gpu_conformance.model import AllGather, Doing

GATHERING = "all-gather of"


class Broken(Exception):
    """A collective failed: mostly because another rank is gone."""


def join(rank: int, ranks: int, store: Any, *, timeout_s: float, gpu: int | None = None) -> None:
    """Form the group, by the address of a store or the store itself. gpu: of this rank, if the model is on one.

    Headers are CPU tensors also where the model is on a GPU: a wrong size over nccl would hang. Only with a GPU is CUDA
    touched: a rank that computes on the CPU may have been forked from a process that has used it.
    """
    torch.set_num_threads(1)
    how: Any = {"init_method": store} if isinstance(store, str) else {"store": store}
    how |= {"backend": "gloo", "rank": rank, "world_size": ranks, "timeout": timedelta(seconds=timeout_s)}
    try:
        if gpu is not None:
            torch.cuda.set_device(gpu)
            how |= {"backend": "cpu:gloo,cuda:nccl", "device_id": torch.device("cuda", gpu)}
        dist.init_process_group(**how)
    except (RuntimeError, ValueError) as problem:
        raise Broken(f"the group did not come together: {problem}") from problem


def drive(work: Generator[Any, Any, Any], tell: Callable[[str], None]) -> Any:
    """Run the generator of a rank; each collective that it yields is carried out by the process group."""
    sent, doing = None, ""
    while True:
        try:
            asked = work.send(sent)
        except StopIteration as ended:
            return ended.value
        doing = asked.what if isinstance(asked, Doing) else doing
        tell(operation(asked, doing))
        sent = all_gather(asked.rows) if isinstance(asked, AllGather) else None


def operation(asked: AllGather | Doing, doing: str) -> str:
    """What a rank is at, for whoever looks when it hangs. doing: what it said last."""
    if isinstance(asked, Doing):
        return asked.what
    return f"{GATHERING} {asked.what}" + (f", after {doing}" if doing else "")


def all_gather(rows: torch.Tensor) -> torch.Tensor:
    gathered = rows.new_empty((dist.get_world_size() * len(rows), *rows.shape[1:]))
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    try:
        gather(gathered, rows.contiguous())
    except RuntimeError as problem:
        raise Broken(str(problem)) from problem
    return gathered
