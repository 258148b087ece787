"""PyTorch's own context parallelism as it is installed: its load balancers, its sharding, its unsharding.

Every virtual rank has a device mesh of its own, made without a process group. Only the collective that unsharding
calls is a stand-in. The mask of attention is not asked: the ring attention behind it runs on GPUs alone.
"""

from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.lacking import NO_COUNTS, NO_DELAYER, NO_GRAPHS

PARALLEL = "torch.distributed.tensor.experimental._context_parallel"
LACKS = {"gate": "it shards every batch", "keys": "the mask is that of ring attention, which runs on GPUs alone"}
LACKS |= NO_DELAYER | NO_GRAPHS | NO_COUNTS


class HeadTail:
    """One sequence, cut into 2 * cp_size equal blocks; rank r holds block r and block 2 * cp_size - 1 - r.

    Raises ImportError or AttributeError where the installed torch has no such balancer.
    """

    name, kind = "torch", "_HeadTailLoadBalancer"
    contract = Contract(graph_strategies=(), divides=2, max_requests=1, cached_prefixes=False)
    unavailable = LACKS

    def __init__(self, package_root: Path, version: str) -> None:
        import torch

        torch.set_num_threads(1)  # tensors of a few rows: threads only cost
        self.version, self.roots = version, (str(Path(package_root, "torch", "distributed", "tensor")),)
        parallel: Any = import_module(PARALLEL)
        self.make_balancer = getattr(parallel, self.kind)
        self.own_shard, self.own_unshard = parallel._context_parallel_shard, parallel.context_parallel_unshard
        two = Batch(lengths=(2,), prefixes=(0,))  # the first call imports; if its symbols have moved, it fails here
        self.gather(two, self.shard(two, [1, 2], cp_size=1, strategy="zigzag"), cp_size=1, strategy="zigzag")

    def balancer(self, lengths: tuple[int, ...], cp_size: int) -> Any:
        return self.make_balancer(sum(lengths), cp_size, "cpu")

    def shard(self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str) -> list[list[int]]:
        balancer = self.balancer(batch.lengths, cp_size)
        ranks = (self.own_shard(mesh(cp_size, rank), [sequence(payload)], [1], balancer) for rank in range(cp_size))
        return [own.flatten().tolist() for (own,) in ranks]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        return self.shard(batch, positions, **group)

    def gather(self, batch: Batch, rows: list[list[int]], *, cp_size: int, strategy: str) -> list[list[int]]:
        balancer, handed_in = self.balancer(batch.lengths, cp_size), list(map(sequence, rows))
        with all_gather_gives(handed_in):
            ranks = enumerate(handed_in)
            back = [self.own_unshard(mesh(cp_size, rank), [own], [1], balancer) for rank, own in ranks]
        return [whole.flatten().tolist() for (whole,) in back]


class PerDocument(HeadTail):
    """Several documents in one sequence, each of them cut like that."""

    name, kind = "torch-per-document", "_PerDocumentHeadTailLoadBalancer"
    contract = Contract(graph_strategies=(), divides=2, cached_prefixes=False)

    def balancer(self, lengths: tuple[int, ...], cp_size: int) -> Any:
        return self.make_balancer([list(lengths)], cp_size, "cpu")


def sequence(tokens: list[int]) -> Any:
    """A batch of one: its shape is (1, tokens)."""
    import torch

    return torch.tensor([tokens], dtype=torch.int64)


def mesh(cp_size: int, rank: int) -> Any:
    """The group as this rank sees it."""
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("cpu", list(range(cp_size)), mesh_dim_names=("cp",), _init_backend=False, _rank=rank)


def all_gather_gives(handed_in: list[Any]) -> Any:
    """While it is entered, torch's all-gather joins what every rank handed in, by its newer name and its older one."""
    import torch

    functional = import_module("torch.distributed._functional_collectives")
    known = [name for name in ("all_gather_single", "all_gather_tensor") if hasattr(functional, name)]
    joined: dict[str, Any] = dict.fromkeys(known, lambda own, dim, group: torch.cat(handed_in, dim=dim))
    return patch.multiple(functional, **joined)
