"""Segments of a model, computed, captured or replayed: one interface for CPU and CUDA.

`run(name, function, *inputs)` is what the model calls. `eager` computes, `Graph.capture` records, `Graph.replay` runs
what was recorded; an input that does not live at the captured address is copied there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu_conformance.arena import Arena
from gpu_conformance.recorder import recording

Tensor = torch.Tensor


def eager(name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
    return function(*inputs)


@dataclass(kw_only=True)
class Segment:
    inputs: tuple[Tensor, ...]
    outputs: Any
    replay: Callable[[], None]


class CpuPool:
    """Memory that all graphs of one rank share, on a CPU. constants: what every capture may read, such as weights."""

    def __init__(self, constants: Iterable[Tensor] = ()) -> None:
        self.arena, self.constants = Arena(), tuple(constants)

    def capture(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Segment:
        with recording(self.arena, (*self.constants, *inputs)) as steps:
            outputs = function(*inputs)

        def replay() -> None:
            for step in steps:
                step()

        return Segment(inputs=inputs, outputs=outputs, replay=replay)

    def static(self, given: Tensor) -> Tensor:
        """A copy at an address that stays."""
        return self.arena.holding(given)

    def intact(self) -> bool:
        return self.arena.intact()

    def mend(self) -> None:
        self.arena.mend()

    def scramble(self) -> None:
        self.arena.scramble()


class CudaPool:
    """The same on a GPU: private memory pool, one `torch.cuda.CUDAGraph` per segment."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def capture(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Segment:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function(*inputs)  # warm up outside the capture
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may call CUDA during a capture: nccl's watchdog asks for events all the time.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            outputs = function(*inputs)
        return Segment(inputs=inputs, outputs=outputs, replay=graph.replay)

    def static(self, given: Tensor) -> Tensor:
        return given.clone()

    def intact(self) -> bool:
        return True  # the driver's pool has no guards: run compute-sanitizer

    def mend(self) -> None:
        pass

    def scramble(self) -> None:
        pass  # nor can its free blocks be written


@dataclass(kw_only=True)
class Graph:
    """The captured segments of one bucket on one rank."""

    pool: Any
    segments: dict[str, Segment] = field(default_factory=dict)
    static: frozenset[int] = frozenset()  # addresses of the fixed inputs

    def capture(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        fixed = {out.data_ptr() for segment in self.segments.values() for out in outputs_of(segment)} | self.static
        kept = tuple(one if one.data_ptr() in fixed else self.pool.static(one) for one in inputs)
        segment = self.segments[name] = self.pool.capture(function, kept)
        segment.replay()
        return segment.outputs

    def replay(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        segment = self.segments[name]
        for kept, given in zip(segment.inputs, inputs, strict=True):
            assert kept.dtype == given.dtype and kept.shape == given.shape, (  # noqa: PT018
                f"{name}: {given.dtype} {tuple(given.shape)} into a captured {kept.dtype} {tuple(kept.shape)}"
            )
            if kept.data_ptr() != given.data_ptr():
                kept.copy_(given)
        segment.replay()
        return segment.outputs


def outputs_of(segment: Segment) -> tuple[Tensor, ...]:
    return segment.outputs if isinstance(segment.outputs, tuple) else (segment.outputs,)
