"""Defects to plant, each the smallest change that makes one public mistake; the check that must see it is named.

`--plant NAME` runs with one of them: it must end with exit code 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu_conformance.buffers import Buffers, Fill, Inputs
from gpu_conformance.graphs import Graph, outputs_of
from gpu_conformance.model import Model
from gpu_conformance.plan import Plan
from gpu_conformance.rank import Parts

Tensor = torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Plant:
    """what: the mistake, one sentence. caught_by: ids, each of which must see it. source: the public bug."""

    what: str
    caught_by: tuple[str, ...]
    source: str = ""
    parts: Callable[[int], Parts] = field(default=lambda cp_rank: Parts())
    decide: Callable[..., int | None] | None = None


def tokens_alone(started: Any, batch: Plan, *, cp_rank: int, number: int) -> int | None:
    """The smallest bucket that holds the tokens, whatever rows it captured."""
    ladder, tokens = started.captured(cp_rank).capture_num_tokens, len(batch.tokens)
    return next((bucket for bucket in ladder if tokens <= bucket <= 2 * tokens), None)


class StaleTail(Buffers):
    """The tail of the slot array is not reset: padding rows write where the batch before wrote."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        stale = self.inputs.slots.clone()
        loaded = super().load(plan, cp_rank, fill)
        padding = loaded.slots == 0
        loaded.slots[padding] = stale[padding]
        return loaded


def short_output(hidden: Tensor) -> Tensor:
    """Half of the output rows are cut off."""
    return hidden[: len(hidden) // 2].clone()


class ReadsPadding(Model):
    """Every row is mixed with the last one, which is padding."""

    def last(self, hidden: Tensor, attended: Tensor) -> Tensor:
        rows = super().last(hidden, attended)
        return rows + rows[-1:]


class WeakOutputs(Graph):
    """What a segment hands to an eager break is held weakly: later captures reuse its memory."""

    def capture(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        super().capture(name, function, *inputs)
        segment = self.segments[name]
        weak = tuple(out.detach() for out in outputs_of(segment))  # the same memory, which nobody holds now
        segment.outputs = weak if isinstance(segment.outputs, tuple) else weak[0]
        return segment.outputs


class SwappedSlots(Buffers):
    """Two rows of the cache are written in each other's place."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[:2] = loaded.slots[:2].flip(0)
        return loaded


class Turned(Model):
    """Rotary embedding is one position ahead."""

    def rotated(self, rows: Tensor, positions: Tensor) -> Tensor:
        return super().rotated(rows, positions + 1)


class Masked(Model):
    """A row does not see itself."""

    def attend(self, queries: Tensor, positions: Tensor, cached: Tensor) -> Tensor:
        return super().attend(queries, (positions - 1).clamp(min=0), cached)


def on_all(**parts: Any) -> Callable[[int], Parts]:
    return lambda cp_rank: Parts(**parts)


def on_last_but_one(**parts: Any) -> Callable[[int], Parts]:
    return lambda cp_rank: Parts(**parts) if cp_rank == 1 else Parts()


EAGER, HISTORY, PADDING = "data.replay-equals-eager", "data.history-free", "data.padding-inert"
PLANTS: dict[str, Plant] = {
    "token-only-selection": Plant(
        what="the bucket is picked by the number of tokens alone",
        caught_by=("capacity.no-overflow",),
        source="sglang#33906",
        decide=tokens_alone,
    ),
    "stale-slots": Plant(
        what=str(StaleTail.__doc__),
        caught_by=(HISTORY,),
        source="sglang#24743 sglang#32477",
        parts=on_all(buffers=StaleTail),
    ),
    "short-output": Plant(what=str(short_output.__doc__), caught_by=(EAGER,), parts=on_all(output=short_output)),
    "padding-read": Plant(
        what=str(ReadsPadding.__doc__), caught_by=(PADDING,), source="sglang#35766", parts=on_all(model=ReadsPadding)
    ),
    "reused-inputs": Plant(
        what=str(WeakOutputs.__doc__),
        caught_by=(EAGER,),
        source="sglang#37606 sglang#37448",
        parts=on_all(graph=WeakOutputs),
    ),
    "swapped-slots": Plant(what=str(SwappedSlots.__doc__), caught_by=(EAGER,), parts=on_all(buffers=SwappedSlots)),
    "rope-on-one-rank": Plant(
        what=f"on one rank: {Turned.__doc__}", caught_by=(EAGER,), parts=on_last_but_one(model=Turned)
    ),
    "rope-on-all-ranks": Plant(what=f"on all ranks: {Turned.__doc__}", caught_by=(EAGER,), parts=on_all(model=Turned)),
    "mask": Plant(what=str(Masked.__doc__), caught_by=(EAGER,), parts=on_all(model=Masked)),
    "one-batch-ahead": Plant(what="one rank is a batch ahead of the others", caught_by=("agree.collectives",)),
}
