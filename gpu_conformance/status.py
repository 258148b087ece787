"""What every rank is doing, in one small memory-mapped file that the parent reads while ranks run or hang."""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ENTRY = struct.Struct("<qd112s")  # operations begun, when (s since the epoch), name of the last


@dataclass(frozen=True, kw_only=True)
class Doing:
    operations: int
    since: float
    last: str


class Status:
    """One entry per rank; each rank writes its own."""

    def __init__(self, path: Path, ranks: int) -> None:
        size = ENTRY.size * ranks
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)
        self.ranks = ranks

    def begin(self, rank: int, operation: str, *, clock: Callable[[], float]) -> None:
        number = self.of(rank).operations + 1
        ENTRY.pack_into(self.memory, rank * ENTRY.size, number, clock(), operation.encode()[:112])

    def of(self, rank: int) -> Doing:
        number, since, name = ENTRY.unpack_from(self.memory, rank * ENTRY.size)
        return Doing(operations=number, since=since, last=name.rstrip(b"\0").decode(errors="replace"))

    def all(self) -> list[Doing]:
        return [self.of(rank) for rank in range(self.ranks)]

    def close(self) -> None:
        self.memory.close()
