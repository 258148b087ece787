"""A CUDA graph without CUDA: operations recorded once and replayed into the same addresses.

Outputs live in one arena, as in a memory pool of CUDA graphs: a block whose tensors died is given to what is captured
next, so that whatever still reads it later reads foreign numbers. Replay runs the same operations on the same
addresses; Python does not run again.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

Tensor = torch.Tensor
GUARD = 64  # bytes between two blocks, never written
MAGIC = 0xA5


class Block:
    """A piece of the arena; goes back when nobody holds it any more."""

    def __init__(self, arena: "Arena", start: int, size: int) -> None:
        self.start, self.size = start, size
        weakref.finalize(self, arena.free.append, (size, start)).atexit = False


class Arena:
    """Bytes of one memory pool, in blocks with guards between them."""

    def __init__(self, size: int = 1 << 26) -> None:
        self.bytes = torch.full((size,), MAGIC, dtype=torch.uint8)
        self.free: list[tuple[int, int]] = []  # (size, start) of blocks that died
        self.end = GUARD
        self.guards: list[int] = [0]

    def block(self, size: int) -> Block:
        size = -(-max(size, 1) // GUARD) * GUARD
        for found in sorted(self.free):
            if found[0] >= size:
                self.free.remove(found)
                return Block(self, found[1], found[0])
        start, self.end = self.end, self.end + size + GUARD
        assert self.end <= len(self.bytes), f"the arena of {len(self.bytes)} bytes is full"
        self.guards.append(start + size)
        return Block(self, start, size)

    def like(self, tensor: Tensor) -> tuple[Tensor, Block]:
        """A tensor of this shape and type in a block of its own."""
        block = self.block(tensor.numel() * tensor.element_size())
        raw = self.bytes[block.start : block.start + tensor.numel() * tensor.element_size()]
        return raw.view(tensor.dtype).view(tensor.shape), block

    def guards_intact(self) -> bool:
        index = torch.tensor(self.guards)[:, None] + torch.arange(GUARD)
        return bool((self.bytes[index] == MAGIC).all())


class Recorder(TorchDispatchMode):
    """Runs what happens inside it, with every new tensor in the arena, and keeps the list of operations."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena = arena
        self.steps: list[Callable[[], None]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or every process imports torch._dynamo: a second

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = function(*args, **kwargs)
        given = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, Tensor)]
        known = {item.untyped_storage().data_ptr(): item for item in given}
        outputs, structure = tree_flatten(made)
        if all(not isinstance(out, Tensor) or out.untyped_storage().data_ptr() in known for out in outputs):
            return self.alias(function, args, kwargs, outputs, structure, known)
        kept = [self.placed(out) if isinstance(out, Tensor) else out for out in outputs]
        self.record(function, args, kwargs, [raw(out) for out in kept])
        return tree_unflatten(kept, structure)

    def alias(self, function: Any, args: Any, kwargs: Any, outputs: Any, structure: Any, known: Any) -> Any:
        """A view, or an operation in place: nothing new to hold, and a view keeps its block alive."""
        if function._schema.is_mutable:
            self.record(function, args, kwargs, None)
        for out in outputs:
            base = known[out.untyped_storage().data_ptr()]
            if out is not base and hasattr(base, "block"):
                out.block = base.block
        return tree_unflatten(outputs, structure)

    def placed(self, out: Tensor) -> Tensor:
        held, block = self.arena.like(out)
        held.copy_(out)
        held.block = block  # type: ignore[attr-defined]
        return held

    def record(self, function: Any, args: Any, kwargs: Any, outputs: list[Any] | None) -> None:
        """Keep addresses, not tensors: what the caller drops is dead although a graph will write it again."""
        args, kwargs = tree_map_only(Tensor, raw, (args, kwargs))

        def step() -> None:
            made = function(*args, **kwargs)
            for kept, new in zip(outputs or (), tree_flatten(made)[0], strict=False):
                kept.copy_(new)

        self.steps.append(step)


def raw(tensor: Tensor) -> Tensor:
    """The same memory under another handle, which does not count as holding the block."""
    return tensor.detach() if hasattr(tensor, "block") else tensor
