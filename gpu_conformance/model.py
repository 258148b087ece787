"""A small transformer, sharded over the ranks of a context-parallel group, written once for every driver.

`forward` is a generator of one rank: it yields each collective and is sent the result. What lies between is captured
(segments, through `run`) or an eager break (attention over the cache), as in breakable CUDA graphs:

    segment  embed, project      ->  hidden, queries, keys and values of the local rows
    break    gather keys and values, write the cache, attend       ->  attended rows
    segment  add, MLP, project   ->  hidden, queries, keys and values of the next layer
    ...
    segment  add, MLP, norm      ->  hidden of the local rows
    break    gather, logits of each request's last token
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from cpbcg_ref.errors import InvalidInput
from gpu_conformance.arithmetic import Arithmetic, Tensor

BLOCK = 256  # rows that attend at a time
Run = Callable[..., Any]  # run(name, function, *inputs): the outputs of a segment, computed, captured or replayed


@dataclass(frozen=True, kw_only=True)
class AllGather:
    """Every rank brings as many rows of one width; each gets all, rank-major."""

    what: str
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class Doing:
    """No collective: what the rank is about to do, for whoever looks when it hangs."""

    what: str


@dataclass(frozen=True, kw_only=True)
class Shape:
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 97
    positions: int = 4096  # longest sequence, cached prefix included

    def __post_init__(self) -> None:
        assert self.hidden % self.heads == 0, f"{self}: heads divide the hidden size"
        assert self.heads % self.kv_heads == 0, f"{self}: each key head serves as many query heads"
        assert self.head % 2 == 0, f"{self}: a head is made of pairs"

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def kv(self) -> int:
        """Width of a cached row: its keys, then its values."""
        return 2 * self.kv_heads * self.head


@dataclass(frozen=True, kw_only=True)
class Model:
    """Weights are equal on every rank: drawn from one seed on the CPU."""

    shape: Shape = Shape()
    arithmetic: Arithmetic
    dtype: torch.dtype = torch.float64
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        assert self.dtype in (torch.float64, torch.float32), f"{self.dtype}: its rounding is larger than real mistakes"
        longest, asked = self.arithmetic.longest(self.shape.hidden, self.dtype), self.shape.positions
        if longest and asked > longest:
            raise InvalidInput(f"{self.dtype} is exact up to sequences of {longest} tokens, not {asked}: use float64")
        assert self.weights, "drawn now: inside a capture they would be drawn again at each replay"

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        shape, seeded = self.shape, torch.Generator().manual_seed(self.seed)
        wanted = {"tokens": (shape.vocabulary, shape.hidden), "places": (shape.positions, shape.hidden)}
        for layer in range(shape.layers):
            wanted |= {f"query {layer}": (shape.hidden, shape.hidden), f"kv {layer}": (shape.hidden, shape.kv)}
            wanted |= {f"out {layer}": (shape.hidden, shape.hidden)}
            wanted |= {
                f"up {layer}": (shape.hidden, 2 * shape.hidden),
                f"down {layer}": (2 * shape.hidden, shape.hidden),
            }
        wanted |= {"head": (shape.hidden, shape.vocabulary)}
        drawn = {name: self.arithmetic.weights(seeded, size) for name, size in wanted.items()}
        return {name: weight.to(device=self.device, dtype=self.dtype) for name, weight in drawn.items()}

    # what is captured ----------------------------------------------------------------------------------------------

    def embed(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """tokens, positions: [rows]. Gives hidden and queries [rows, hidden], keys and values [rows, kv]."""
        hidden = self.weights["tokens"][tokens] + self.weights["places"][positions]
        return hidden, *self.project(0, hidden, positions)

    def next_layer(
        self, layer: int, hidden: Tensor, attended: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.finish(layer - 1, hidden, attended)
        return hidden, *self.project(layer, hidden, positions)

    def last(self, hidden: Tensor, attended: Tensor) -> Tensor:
        return self.arithmetic.norm(self.finish(self.shape.layers - 1, hidden, attended))

    def project(self, layer: int, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        normed, shape = self.arithmetic.norm(hidden), self.shape
        both, half = normed @ self.weights[f"kv {layer}"], shape.kv // 2
        keys, values = both[:, :half], both[:, half:]
        queries = self.rotated(normed @ self.weights[f"query {layer}"], positions)
        return queries, torch.cat((self.rotated(keys, positions), values), dim=-1)

    def rotated(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Rotary position embedding: each pair of a head turns with the position."""
        pairs = self.shape.head // 2
        cosine, sine = (part.to(rows.dtype)[:, None] for part in self.arithmetic.turn(positions, pairs))
        first, second = rows.view(len(rows), -1, 2, pairs).unbind(2)
        return torch.stack((first * cosine - second * sine, first * sine + second * cosine), 2).view(rows.shape)

    def finish(self, layer: int, hidden: Tensor, attended: Tensor) -> Tensor:
        """What follows attention in a layer."""
        norm, activate = self.arithmetic.norm, self.arithmetic.activate
        hidden = hidden + norm(attended) @ self.weights[f"out {layer}"]
        inner = activate(norm(hidden) @ self.weights[f"up {layer}"])
        return hidden + norm(inner) @ self.weights[f"down {layer}"]

    # what is not ---------------------------------------------------------------------------------------------------

    def attend(self, queries: Tensor, positions: Tensor, cached: Tensor) -> Tensor:
        """queries [rows, hidden] at `positions` [rows] of a sequence, over its cached rows [keys, kv].

        Some rows at a time: the scores of a long prompt at once are gigabytes.
        """
        blocks = [slice(start, start + BLOCK) for start in range(0, max(1, len(queries)), BLOCK)]
        return torch.cat([self.attend_at_once(queries[block], positions[block], cached) for block in blocks])

    def attend_at_once(self, queries: Tensor, positions: Tensor, cached: Tensor) -> Tensor:
        shape, groups = self.shape, self.shape.heads // self.shape.kv_heads
        keys, values = cached.view(len(cached), 2, shape.kv_heads, shape.head).unbind(1)
        asked = queries.view(len(queries), shape.kv_heads, groups, shape.head)
        scores = torch.einsum("rkgd,skd->rkgs", asked, keys)
        visible = torch.arange(len(cached), device=cached.device)[None] <= positions[:, None]
        weights = self.arithmetic.weigh(scores, visible[:, None, None])
        return torch.einsum("rkgs,skd->rkgd", weights, values).reshape(queries.shape)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weights["head"]


def forward(model: Model, inputs: Any, cache: Any, run: Run) -> Generator[AllGather, Tensor, tuple[Tensor, Tensor]]:
    """One rank's pass over one batch: its hidden rows, and the logits of each request's last token.

    inputs, cache: a rank's `Inputs` and `Cache` (see buffers).
    """
    hidden, queries, kv = run("embed", model.embed, inputs.tokens, inputs.positions)
    for layer in range(model.shape.layers):
        gathered = yield AllGather(what=f"kv of layer {layer}", rows=kv)
        cache.write(layer, inputs.slots, gathered)
        attended = attend(model, inputs, queries, partial(cache.read, layer))
        if layer + 1 < model.shape.layers:
            step = partial(model.next_layer, layer + 1)
            hidden, queries, kv = run(f"layer {layer + 1}", step, hidden, attended, inputs.positions)
    rows = run("last", model.last, hidden, attended)
    gathered = yield AllGather(what="hidden", rows=rows)
    return rows, model.logits(gathered[inputs.last_rows])


def attend(model: Model, inputs: Any, queries: Tensor, cached: Callable[[Tensor], Tensor]) -> Tensor:
    """The break: live rows by request; a padding row attends to nothing and gets any number."""
    attended = torch.full_like(queries, inputs.unattended)
    for rows, slots in inputs.sequences:
        attended[rows] = model.attend(queries[rows], inputs.positions[rows], cached(slots))
    return attended
