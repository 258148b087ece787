"""What every rank is doing, in memory that the parent reads while ranks run or hang."""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass

ENTRY = struct.Struct("@qd176s")  # operations begun, when (monotonic: one clock for all processes), name of the last


@dataclass(frozen=True, kw_only=True)
class Doing:
    operations: int = 0
    since: float = 0.0
    last: str = ""


class Status:
    """One entry per rank, in memory without a name that forked processes share; each rank writes its own."""

    def __init__(self, ranks: int) -> None:
        self.memory, self.ranks = mmap.mmap(-1, ENTRY.size * ranks), ranks

    def begin(self, rank: int, operation: str, *, clock: Callable[[], float]) -> None:
        name = operation.encode()[: ENTRY.size - 16]
        ENTRY.pack_into(self.memory, rank * ENTRY.size, self.of(rank).operations + 1, clock(), name)

    def of(self, rank: int) -> Doing:
        number, since, name = ENTRY.unpack_from(self.memory, rank * ENTRY.size)
        return Doing(operations=number, since=since, last=name.rstrip(b"\0").decode(errors="replace"))

    def all(self) -> list[Doing]:
        return [self.of(rank) for rank in range(self.ranks)]

    def close(self) -> None:
        self.memory.close()
