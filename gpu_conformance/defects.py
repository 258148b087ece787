"""What planted defects put in the place of a right part: each the smallest change that makes one mistake.

The docstring of each is the mistake, in one sentence.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from gpu_conformance.buffers import GUARD_ROWS, Buffers, Fill, Inputs
from gpu_conformance.graphs import Graph, outputs_of
from gpu_conformance.model import Model
from gpu_conformance.plan import SCRATCH, Plan

Tensor = torch.Tensor


def tokens_alone(started: Any, batch: Plan, *, cp_rank: int, number: int) -> int | None:
    """The bucket is picked by the number of tokens alone, whatever rows it captured."""
    ladder, tokens = started.captured(cp_rank).capture_num_tokens, len(batch.tokens)
    return next((bucket for bucket in ladder if tokens <= bucket <= 2 * tokens), None)


def short_output(hidden: Tensor) -> Tensor:
    """Half of the output rows are cut off."""
    return hidden[: len(hidden) // 2].clone()


# How a batch is loaded into the captured buffers ---------------------------------------------------------------------


def padding(plan: Plan, rows: int) -> Tensor:
    """Which of the gathered rows have no token."""
    return torch.tensor([row >= len(local) for local in plan.rows for row in range(rows)])


class Remembers(Buffers):
    """What a load leaves for the next one, until the buffers are wiped."""

    @cached_property
    def left(self) -> dict[str, Any]:
        return {}

    def wipe(self) -> None:
        super().wipe()
        self.left.clear()


class StaleTail(Buffers):
    """The tail of the slot array is not reset: padding rows write where the batch before wrote."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        stale = self.inputs.slots.clone()
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[padding(plan, self.rows)] = stale[padding(plan, self.rows)]
        return loaded


class StaleRequests(Remembers):
    """Requests of the batch before stay behind those of a batch that has fewer."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded, before = super().load(plan, cp_rank, fill), self.left.get("sequences", ())
        self.left["sequences"] = loaded.sequences
        return replace(loaded, sequences=loaded.sequences + before[len(loaded.sequences) :])


class StaleLive(Remembers):
    """The number of live rows is that of the first batch: rows past it attend to nothing."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded, live = super().load(plan, cp_rank, fill), self.left.setdefault("live", len(plan.rows[cp_rank]))
        return replace(loaded, sequences=tuple((rows[rows < live], slots) for rows, slots in loaded.sequences))


class LateTokens(Remembers):
    """The copy of the tokens was not waited for: those of the load before are computed."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        now = loaded.tokens.clone()
        loaded.tokens.copy_(self.left.get("tokens", now))
        self.left["tokens"] = now
        return loaded


class EarlyPadding(Buffers):
    """Where there is padding it begins one row early and covers the last live row; full buckets are right."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded, live = super().load(plan, cp_rank, fill), len(plan.rows[cp_rank])
        if 0 < live < self.rows:
            loaded.tokens[live - 1], loaded.positions[live - 1] = fill.token, fill.position
        return loaded


class PaddedBreak(Buffers):
    """The eager break is sized by the padded count: padding rows are cached as the last live token."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[padding(plan, self.rows)] = plan.slots[-1]
        return loaded


class IdleRows(Buffers):
    """Rows that were made up to fill a bucket are taken for the last token of the last request."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        *others, (rows, slots) = loaded.sequences
        if bool(padding(plan, self.rows).any()):
            slots = torch.cat((slots[:-1], torch.full_like(slots[-1:], SCRATCH)))
        return replace(loaded, sequences=(*others, (rows, slots)))


class ForeignPadding(Buffers):
    """Padding rows write to slot 1, which a request may own, instead of the scratch slot."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[padding(plan, self.rows)] = 1
        return loaded


class UnmaskedPadding(Buffers):
    """Padding rows have the slot -1, and the write does not mask it."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[padding(plan, self.rows)] = -1
        return loaded


class ShortOffsets(Buffers):
    """Padding rows have no entry in the array of offsets: their slots are what stands beside it."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[padding(plan, self.rows)] = self.memory[-1]
        return loaded


class LongPadding(Buffers):
    """Padding is written one row too far, beside the array of tokens."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        self.memory[GUARD_ROWS + self.rows] = fill.token
        return super().load(plan, cp_rank, fill)


class FrozenPrefix(Buffers):
    """That there is no cached prefix was baked in at capture: positions of new tokens begin at 0."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        for row, token in enumerate(plan.rows[cp_rank][: self.rows]):
            loaded.positions[row] -= plan.sequences[plan.request[token]].prefix
        return loaded


class LostWrites(Buffers):
    """The replay writes nothing to the slots of its tokens."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots.fill_(SCRATCH)
        return loaded


class SwappedSlots(Buffers):
    """Two rows of the cache are written in each other's place."""

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        loaded = super().load(plan, cp_rank, fill)
        loaded.slots[:2] = loaded.slots[:2].flip(0)
        return loaded


# What is computed ----------------------------------------------------------------------------------------------------


class ReadsPadding(Model):
    """Every row is mixed with the last one, which is padding."""

    def last(self, hidden: Tensor, attended: Tensor) -> Tensor:
        rows = super().last(hidden, attended)
        return rows + rows[-1:]


class ReadsBreak(Model):
    """Every row is mixed with what an eager break left in the last row, where it computes nothing."""

    def last(self, hidden: Tensor, attended: Tensor) -> Tensor:
        return super().last(hidden, attended + attended[-1:])


class Turned(Model):
    """Rotary embedding is one position ahead."""

    def rotated(self, rows: Tensor, positions: Tensor) -> Tensor:
        return super().rotated(rows, positions + 1)


class Masked(Model):
    """A row does not see itself."""

    def attend(self, queries: Tensor, positions: Tensor, cached: Tensor) -> Tensor:
        return super().attend(queries, (positions - 1).clamp(min=0), cached)


# How it is captured and replayed -------------------------------------------------------------------------------------


class WeakOutputs(Graph):
    """What a segment hands to an eager break is held weakly: later captures reuse its memory."""

    def capture(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        super().capture(name, function, *inputs)
        segment = self.segments[name]
        weak = tuple(out.detach() for out in outputs_of(segment))  # the same memory, which nobody holds now
        segment.outputs = weak if isinstance(segment.outputs, tuple) else weak[0]
        return segment.outputs


class AnotherKernel(Graph):
    """The graph computes with another kernel than the eager run: the last bit differs."""

    def replay(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        outputs = super().replay(name, function, *inputs)
        if name == "last":
            outputs.copy_(outputs.nextafter(outputs + 1))
        return outputs


class LongOutput(Graph):
    """A graph writes one number more than its output has."""

    def replay(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        outputs = super().replay(name, function, *inputs)
        first = outputs_of(self.segments[name])[0]
        first.as_strided((first.numel() + 1,), (1,))[-1] = 0
        return outputs
