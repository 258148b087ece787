"""Two ways to compute the same model: smoothly like a real one, or exactly.

In exact arithmetic every number is a small integer held in a float: each sum is exact in any order, so that a sharded
run and a whole one must agree to the last bit. Norms become a remainder, weights of keys a remainder of the scores,
rotations quarter turns.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
MODULUS = 7.0  # a norm leaves 0 to 6: sums of products stay small enough for float32 too
WHOLE = {torch.float32: 2**24, torch.float64: 2**53}  # up to here every whole number is exact


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """norm(hidden), weigh(scores, visible) -> weights of keys, activate(hidden), angle(positions, pairs) -> radians."""

    name: str
    weights: Callable[[torch.Generator, tuple[int, ...]], Tensor]
    norm: Callable[[Tensor], Tensor]
    weigh: Callable[[Tensor, Tensor], Tensor]
    activate: Callable[[Tensor], Tensor]
    turn: Callable[[Tensor, int], tuple[Tensor, Tensor]]  # positions, pairs -> cosine and sine per row and pair

    def longest(self, hidden: int, dtype: torch.dtype) -> int | None:
        """How many keys a row may weigh and stay exact: a weight is at most 6, an entry of a value 6 x hidden."""
        return WHOLE[dtype] // (36 * hidden) if self.name == "exact" else None


def smooth_weights(seeded: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=seeded, dtype=torch.float64) / math.sqrt(shape[0])


def smooth_norm(hidden: Tensor) -> Tensor:
    return hidden * torch.rsqrt((hidden * hidden).mean(-1, keepdim=True) + 1e-6)


def softmax(scores: Tensor, visible: Tensor) -> Tensor:
    return torch.softmax(torch.where(visible, scores * scores.new_tensor(0.25), float("-inf")), dim=-1)


def rope(positions: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    rate = 100.0 ** (-torch.arange(pairs, device=positions.device, dtype=torch.float64) / pairs)
    angle = positions[:, None].to(torch.float64) * rate
    return angle.cos(), angle.sin()


def exact_weights(seeded: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(-1, 2, shape, generator=seeded).to(torch.float64)


def remainder(hidden: Tensor) -> Tensor:
    return torch.remainder(hidden, MODULUS)


def counted(scores: Tensor, visible: Tensor) -> Tensor:
    return torch.where(visible, torch.remainder(scores, MODULUS), 0.0)


def quarter_turns(positions: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Pair p turns by a quarter every p + 1 positions, so that no shift is invisible to all pairs."""
    steps = torch.arange(1, pairs + 1, device=positions.device)
    quarters = torch.remainder(positions[:, None] // steps, 4)
    cosine = (quarters == 0).to(torch.float64) - (quarters == 2).to(torch.float64)
    sine = (quarters == 1).to(torch.float64) - (quarters == 3).to(torch.float64)
    return cosine, sine


SMOOTH = Arithmetic(
    name="smooth", weights=smooth_weights, norm=smooth_norm, weigh=softmax, activate=torch.tanh, turn=rope
)
EXACT = Arithmetic(
    name="exact", weights=exact_weights, norm=remainder, weigh=counted, activate=torch.relu, turn=quarter_turns
)
