"""One rank of the group: its cache, its graphs, and the generator of everything it does.

What a rank does is one generator that yields its collectives, so that the same code runs in step with the others in one
process, or in a process of its own over gloo or nccl.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from gpu_conformance.buffers import Buffers, Cache, Fill, Inputs
from gpu_conformance.graphs import CpuPool, CudaPool, Graph, eager
from gpu_conformance.model import AllGather, Doing, Model, forward
from gpu_conformance.plan import Plan, Request, plan

Tensor = torch.Tensor
NO_FILL = Fill()
Collective = Generator[AllGather | Doing, Tensor, Any]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a rank is built of; a planted defect replaces one of them."""

    model: type[Model] = Model
    buffers: type[Buffers] = Buffers
    graph: type[Graph] = Graph
    output: Callable[[Tensor], Tensor] = torch.clone  # of the captured output: the next replay overwrites it


@dataclass(frozen=True, kw_only=True)
class Output:
    """hidden: the rows that came out. logits: of each request's last token. cache: this rank's copy afterwards."""

    hidden: Tensor
    logits: Tensor
    cache: Tensor


@dataclass(kw_only=True)
class Rank:
    cp_rank: int
    cp_size: int
    truth: Model  # what the engine's model should compute
    slots: int  # of the cache
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        self.model = self.parts.model(**vars_of(self.truth))
        shape, device = self.model.shape, self.model.device
        self.cache = Cache.of(shape.layers, self.slots, shape.kv, dtype=self.model.dtype, device=device)
        self.pool: Any = CudaPool() if device.startswith("cuda") else CpuPool(self.model.weights.values())
        self.graphs: dict[int, Graph] = {}
        self.buffers: dict[int, Buffers] = {}

    def room(self, rows: int) -> Buffers:
        return self.parts.buffers(rows=rows, cp_size=self.cp_size, device=self.model.device)

    def capture(self, requests: Mapping[int, Sequence[int]], rows: Mapping[int, int]) -> Collective:
        """A graph per bucket from its synthetic requests, the largest first, as engines do."""
        for bucket in sorted(requests, reverse=True):
            yield Doing(what=f"capturing bucket {bucket}")
            room = self.buffers[bucket] = self.room(rows[bucket])
            graph = self.graphs[bucket] = self.parts.graph(pool=self.pool, static=room.addresses)
            inputs = room.load(plan(synthetic(requests[bucket]), self.cp_size), self.cp_rank, NO_FILL)
            yield from self.run(inputs, graph.capture)
        self.cache.rows.zero_()

    def run(self, inputs: Inputs, how: Any) -> Collective:
        hidden, logits = yield from forward(self.model, inputs, self.cache, how)
        return Output(hidden=self.parts.output(hidden), logits=logits, cache=self.cache.rows.clone())

    def replay(self, batch: Plan, bucket: int, *, fill: Fill = NO_FILL, fresh: bool = False) -> Collective:
        """Load the batch into the captured buffers and replay. fresh: first wipe what earlier batches left."""
        room = self.buffers[bucket]
        if fresh:
            room.wipe()
            self.pool.scramble()
        inputs = room.load(batch, self.cp_rank, fill)
        return (yield from self.run(inputs, self.graphs[bucket].replay))

    def eager(self, batch: Plan, rows: int, *, fill: Fill = NO_FILL) -> Collective:
        """The same batch at as many padded rows, in fresh buffers, without a graph."""
        room = Buffers(rows=rows, cp_size=self.cp_size, device=self.model.device)
        return (yield from self.run(room.load(batch, self.cp_rank, fill), eager))

    def overwritten(self) -> list[str]:
        """What was written beside since this was asked last."""
        rooms = {f"the inputs of bucket {bucket}": room for bucket, room in self.buffers.items()}
        guarded = {"the KV cache": self.cache, "the memory of the graphs": self.pool, **rooms}
        broken = [name for name, one in guarded.items() if not one.intact()]
        for name in broken:
            guarded[name].mend()
        return broken


def vars_of(model: Model) -> dict[str, Any]:
    return {field.name: getattr(model, field.name) for field in fields(model)}


def synthetic(lengths: Sequence[int]) -> list[Request]:
    """Requests to capture with: every token in the scratch slot."""
    return [Request(tokens=(0,) * length, prefix=0, slots=(0,) * length) for length in lengths]
