"""Which batches a server can get, and what a bucket holds once it is captured."""

from dataclasses import dataclass

from cpbcg_ref.errors import check, refuse
from cpbcg_ref.layout import STRATEGIES


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What bounds a batch: a CP group, the longest request (tokens), the most requests if they are limited."""

    cp_size: int
    context_length: int
    max_requests: int | None = None
    strategy: str = "zigzag"

    def __post_init__(self) -> None:
        check(int, least=2, what="the ranks of the group (without CP the tokens alone decide)", cp_size=self.cp_size)
        check(int, least=1, what="the longest request (tokens)", context_length=self.context_length)
        check(int | None, least=1, what="the most requests of a batch", max_requests=self.max_requests)
        if type(self.strategy) is not str or self.strategy not in STRATEGIES:
            refuse("strategy", self.strategy, f"choose one of {', '.join(STRATEGIES)}")
        if self.context_length < self.shortest:
            refuse("context_length", self.context_length, f"{STRATEGIES[self.strategy].needs}: {self.shortest} or more")

    @property
    def zigzag(self) -> bool:
        return self.strategy == "zigzag"

    @property
    def shortest(self) -> int:
        """Tokens of the shortest request of an active batch."""
        return 2 * self.cp_size if self.zigzag else 1

    @property
    def least(self) -> int:
        """Tokens of the smallest active batch."""
        return 2 * self.cp_size if self.zigzag else self.cp_size

    def requests(self, tokens: int) -> range:
        """How many requests an active batch of so many tokens can have; empty if there is no such batch."""
        most = tokens // self.shortest if tokens >= self.least else 0
        return range(max(1, -(-tokens // self.context_length)), min(most, self.max_requests or most) + 1)

    def aligned(self, rows: int) -> int:
        unit = STRATEGIES[self.strategy].multiple * self.cp_size
        return -(-rows // unit) * unit

    def captured(self, bucket: int) -> int:
        """Rows of a bucket as `CaptureTable` has them, in a time that does not grow with it; 0 if it is dropped.

        >>> Shape(cp_size=4, context_length=9).captured(27)
        16
        """
        count = -(-bucket // self.context_length)
        base, longer = divmod(bucket, count)
        if base < self.shortest or bucket < self.least:
            return 0
        if not self.zigzag:
            return self.aligned(-(-bucket // self.cp_size))
        # Lengths are one apart: their rows together fall from rank to rank, or grow.
        n, split = self.cp_size, ((base + 1, longer), (base, count - longer))
        return self.aligned(max(sum(many * load(rank, one, n) for one, many in split) for rank in (0, n - 1)))


def load(rank: int, length: int, n: int) -> int:
    """Rows that one zigzag request has on a rank."""
    base, remainder = divmod(length, 2 * n)
    return 2 * base + (remainder > rank) + (remainder > 2 * n - 1 - rank)
