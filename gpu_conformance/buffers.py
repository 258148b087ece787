"""The fixed inputs of one bucket on one rank: captured addresses that every batch is loaded into."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from gpu_conformance.plan import SCRATCH, Plan

Tensor = torch.Tensor
GUARD_ROWS, MAGIC = 4, -(2**62) + 12345
CACHE_MAGIC = -12345.0  # exact in every type of number


@dataclass(frozen=True, kw_only=True)
class Fill:
    """What stands in padding rows: any valid token at any valid position, any number that an eager break leaves."""

    token: int = 0
    position: int = 0
    attended: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A rank's view of one batch. tokens, positions: [rows]. slots: [cp_size x rows], of the gathered rows.

    sequences: per request its local rows and the slots of its whole sequence. last_rows: gathered row of each request's
    last token. unattended: what the eager breaks leave in padding rows.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    sequences: tuple[tuple[Tensor, Tensor], ...] = ()
    last_rows: Tensor | None = None
    unattended: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Keys and values of all slots, [layers, slots, kv], with guard rows before and after the slots of each layer.

    A slot is an offset, whatever it is: like a kernel, this looks for no bound. One that lies far outside lands in the
    last guard row. Reads of guards go unseen, but bring numbers that no right result has.
    """

    memory: Tensor

    @classmethod
    def of(cls, layers: int, slots: int, width: int, **kind: Any) -> "Cache":
        cache = cls(memory=torch.full((layers, slots + 2 * GUARD_ROWS, width), CACHE_MAGIC, **kind))
        cache.rows.zero_()
        return cache

    @property
    def rows(self) -> Tensor:
        return self.memory[:, GUARD_ROWS:-GUARD_ROWS]

    def at(self, slots: Tensor) -> Tensor:
        return (slots.clamp(-GUARD_ROWS) + GUARD_ROWS).clamp(max=self.memory.shape[1] - 1)

    def write(self, layer: int, slots: Tensor, rows: Tensor) -> None:
        self.memory[layer].index_copy_(0, self.at(slots), rows)

    def read(self, layer: int, slots: Tensor) -> Tensor:
        return self.memory[layer].index_select(0, self.at(slots))

    @property
    def guards(self) -> tuple[Tensor, Tensor]:
        return self.memory[:, :GUARD_ROWS], self.memory[:, -GUARD_ROWS:]

    def intact(self) -> bool:
        return all(bool((guard == CACHE_MAGIC).all()) for guard in self.guards)

    def mend(self) -> None:
        for guard in self.guards:
            guard.fill_(CACHE_MAGIC)


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """Room for `rows` rows on each of `cp_size` ranks, with guard rows around each array."""

    rows: int
    cp_size: int
    device: str = "cpu"

    @cached_property
    def memory(self) -> Tensor:
        """tokens, positions, slots, each between guards, in one piece."""
        size = sum(self.sizes) + 4 * GUARD_ROWS
        memory = torch.full((size,), MAGIC, dtype=torch.int64, device=self.device)
        for array in self.arrays(memory):
            array.zero_()
        return memory

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.rows, self.rows, self.cp_size * self.rows

    def arrays(self, memory: Tensor) -> list[Tensor]:
        starts = [GUARD_ROWS, 2 * GUARD_ROWS + self.rows, 3 * GUARD_ROWS + 2 * self.rows]
        return [memory[start : start + size] for start, size in zip(starts, self.sizes, strict=True)]

    @cached_property
    def inputs(self) -> Inputs:
        tokens, positions, slots = self.arrays(self.memory)
        return Inputs(tokens=tokens, positions=positions, slots=slots)

    @property
    def addresses(self) -> frozenset[int]:
        """Of what a graph reads directly."""
        return frozenset({self.inputs.tokens.data_ptr(), self.inputs.positions.data_ptr()})

    def wipe(self) -> None:
        """As before the first batch."""
        for array in self.arrays(self.memory):
            array.zero_()

    @property
    def guards(self) -> list[Tensor]:
        starts = [0, GUARD_ROWS + self.rows, 2 * GUARD_ROWS + 2 * self.rows, len(self.memory) - GUARD_ROWS]
        return [self.memory[start : start + GUARD_ROWS] for start in starts]

    def intact(self) -> bool:
        """Has nobody written beside the arrays."""
        return all(bool((guard == MAGIC).all()) for guard in self.guards)

    def mend(self) -> None:
        for guard in self.guards:
            guard.fill_(MAGIC)

    def load(self, plan: Plan, cp_rank: int, fill: Fill) -> Inputs:
        """Write a batch into the captured addresses. What it does not fill is reset: the batch before shows through."""
        fixed, own = self.inputs, plan.rows[cp_rank][: self.rows]
        write(fixed.tokens, [plan.tokens[token] for token in own], fill.token)
        write(fixed.positions, [plan.positions[token] for token in own], fill.position)
        write(fixed.slots, self.gathered(plan), SCRATCH)
        return replace(attended(plan, own, fixed, self.rows), unattended=fill.attended)

    def gathered(self, plan: Plan) -> list[int]:
        """Cache slots of the gathered rows, rank after rank, up to the last live row."""
        padded = [
            [plan.slots[t] for t in rows[: self.rows]] + [SCRATCH] * (self.rows - len(rows)) for rows in plan.rows
        ]
        return [slot for rows in padded for slot in rows]


def write(array: Tensor, values: list[int], padding: int) -> None:
    array[: len(values)] = torch.tensor(values, dtype=array.dtype)
    array[len(values) :] = padding


def attended(plan: Plan, own: tuple[int, ...], fixed: Inputs, rows: int) -> Inputs:
    """The part of a batch that eager breaks read: it has no captured address."""
    device = fixed.tokens.device
    places = {token: rank * rows + row for rank, local in enumerate(plan.rows) for row, token in enumerate(local)}
    of_request = [
        [row for row, token in enumerate(own) if plan.request[token] == i] for i in range(len(plan.sequences))
    ]
    sequences = tuple(
        (torch.tensor(local, dtype=torch.int64, device=device), torch.tensor(one.slots, device=device))
        for local, one in zip(of_request, plan.sequences, strict=True)
    )
    most = len(plan.rows) * rows - 1
    last = torch.tensor([min(places[token], most) for token in plan.last_tokens], device=device)
    return Inputs(
        tokens=fixed.tokens, positions=fixed.positions, slots=fixed.slots, sequences=sequences, last_rows=last
    )
