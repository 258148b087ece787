"""Memory of one pool, as CUDA graphs have it: a block whose tensors died is given to what is captured next."""

import weakref

import torch

Tensor = torch.Tensor
GUARD = 64  # bytes between two blocks, never written
MAGIC, SCRAMBLED = 0xA5, 0xFF  # the second is NaN as a float, -1 as an integer


class Block:
    """A piece of the arena; goes back when nobody holds it any more."""

    def __init__(self, arena: "Arena", start: int, size: int) -> None:
        self.start, self.size = start, size
        weakref.finalize(self, arena.free.append, (size, start)).atexit = False


class Arena:
    """Bytes of one memory pool, in blocks with guards between them.

    Guards tell writes beside a block. Reads beside it go unseen: nothing on a CPU watches them inside one allocation.
    """

    def __init__(self, size: int = 1 << 26) -> None:
        self.bytes = torch.empty(size, dtype=torch.uint8)
        self.free: list[tuple[int, int]] = []  # (size, start) of blocks that died
        self.end = 0
        self.guards: list[int] = []
        self.guard()

    def guard(self) -> None:
        self.guards.append(self.end)
        self.bytes[self.end : self.end + GUARD] = MAGIC
        self.end += GUARD

    def block(self, size: int) -> Block:
        size = -(-max(size, 1) // GUARD) * GUARD
        if fitting := [found for found in reversed(self.free) if found[0] >= size]:
            found = min(fitting, key=lambda one: one[0])  # of the smallest the one that died last
            self.free.remove(found)
            return Block(self, found[1], found[0])
        start, self.end = self.end, self.end + size
        assert self.end + GUARD <= len(self.bytes), f"the arena of {len(self.bytes)} bytes is full"
        self.guard()
        return Block(self, start, size)

    def like(self, tensor: Tensor) -> tuple[Tensor, Block]:
        """A tensor of this shape, type and order of axes in a block of its own."""
        size = tensor.numel() * tensor.element_size()
        block = self.block(size)
        flat = self.bytes[block.start : block.start + size].view(tensor.dtype)
        return flat.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride()), block

    def holding(self, tensor: Tensor) -> Tensor:
        """A copy that keeps its block."""
        held, block = self.like(tensor)
        held.copy_(tensor)
        held.block = block  # type: ignore[attr-defined]
        return held

    def extent(self, tensor: Tensor) -> tuple[int, int]:
        """Addresses from and to that a holder of this tensor may read."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() != self.bytes.data_ptr():
            return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if block := getattr(tensor, "block", None):
            return self.bytes.data_ptr() + block.start, self.bytes.data_ptr() + block.start + block.size
        return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()

    @property
    def guard_bytes(self) -> Tensor:
        return torch.tensor(self.guards)[:, None] + torch.arange(GUARD)

    def intact(self) -> bool:
        return bool((self.bytes[self.guard_bytes] == MAGIC).all())

    def mend(self) -> None:
        self.bytes[self.guard_bytes] = MAGIC

    def scramble(self) -> None:
        """As if other graphs of the pool had run: no block keeps what a replay left there."""
        index = self.guard_bytes
        guards = self.bytes[index]
        self.bytes[: self.end] = SCRAMBLED
        self.bytes[index] = guards
