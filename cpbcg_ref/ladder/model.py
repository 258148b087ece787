"""What a ladder comes to."""

from collections.abc import Mapping
from dataclasses import dataclass

from cpbcg_ref.ladder.shape import Shape

Totals = tuple[int, int]  # tokens of a batch: first and last, both included


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """Totals in a row of which some active batch falls back: no bucket has its tokens, or none of those has its rows.

    `batch`: the smallest of them all (fewest tokens, then requests, then lexicographic), and the `rows` that it needs.
    `held`: the most rows of a bucket that has as many tokens and not too much padding; None if there is no such bucket.
    """

    totals: Totals
    to_serve: bool
    batch: tuple[int, ...]
    rows: int
    held: int | None

    def __post_init__(self) -> None:
        assert sum(self.batch) == self.totals[0] <= self.totals[1], f"{self}: the batch is one of the first total"
        assert self.held is None or self.held < self.rows, f"{self}: its batch runs in a graph"

    @property
    def why(self) -> str:
        """What no bucket has: "tokens" or "rows"."""
        return "tokens" if self.held is None else "rows"


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Buckets, the rows captured for each, and how many rows more than the given ladder's that is in all."""

    captured: Mapping[int, int]
    more_rows: int

    @property
    def rows(self) -> int:
        return sum(self.captured.values())


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """`fallbacks` ascend and end at the largest bucket or total to serve; of larger totals every batch falls back.

    `unservable`: totals to serve of which some batch falls back whatever is captured, for no bucket within the padding
    factor has the rows. For all others to serve, none falls back with `smallest`, the fewest buckets there can be, nor
    with `extended`, the given ones and the fewest to add. Of several such ladders each is one with the fewest rows.
    `is_smallest`: fewest for certain; not so if some total needs more rows than a larger one (see `cover`).
    """

    shape: Shape
    max_padding_factor: float
    given: Ladder
    dropped: tuple[int, ...]
    to_serve: Totals
    fallbacks: tuple[Fallback, ...]
    unservable: tuple[Totals, ...]
    smallest: Ladder
    extended: Ladder
    is_smallest: bool

    @property
    def always_from(self) -> int:
        """From this total on every batch falls back."""
        return max(self.to_serve[1], *self.given.captured) + 1

    @property
    def can_fall_back(self) -> bool:
        """Can a total that is to be served?"""
        return any(one.to_serve for one in self.fallbacks)
