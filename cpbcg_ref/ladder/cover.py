"""The fewest buckets with which no total falls back; of several such ladders one with the fewest captured rows."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from cpbcg_ref.ladder.shape import Shape


def cover(shape: Shape, needs: Mapping[int, int], *, factor: float) -> tuple[int, ...]:
    """Buckets for the totals of `needs` (ascending, with the rows that each needs), but those that no bucket serves.

    Where needs ascend too, the totals that a bucket serves stand in a row, and the cheapest cover is found total by
    total. Where not, each is taken to need what a smaller one does, so that the cover may be larger than it had to be.
    """
    ascending = [*accumulate(needs.values(), max)]
    found = cheapest(len(needs), served(shape, [*needs], ascending, factor))
    left = singles(shape, needs, found, factor) if ascending != [*needs.values()] else ()
    return tuple(sorted({*found, *left}))


def served(
    shape: Shape, totals: Sequence[int], rows: Sequence[int], factor: float
) -> Iterator[tuple[int, int, int, int]]:
    """Per bucket that serves any: the first and last total that it serves (their places), its rows, the bucket."""
    first = past = 0
    for bucket in range(totals[0], int(factor * totals[-1]) + 1) if totals else ():
        while factor * totals[first] < bucket:
            first += 1
        while past < len(totals) and totals[past] <= bucket:
            past += 1
        captured = shape.captured(bucket)
        last = min(past, bisect_right(rows, captured)) - 1
        if last >= first:
            yield first, last, captured, bucket


def cheapest(places: int, buckets: Iterator[tuple[int, int, int, int]]) -> list[int]:
    """A cover of the places 0, 1, ... of fewest buckets, then fewest rows: place by place, from what covers it."""
    cost: list[tuple[int, int]] = [(0, 0)]  # of all places before this one
    taken: list[tuple[int, int] | None] = []  # the bucket that covers it, and the place from which on it does
    open_: list[tuple[tuple[int, int], int, int, int]] = []  # cost, bucket, first, last
    waiting = next(buckets, None)
    for place in range(places):
        while waiting and waiting[0] <= place:
            first, last, rows, bucket = waiting
            heappush(open_, ((cost[first][0] + 1, cost[first][1] + rows), bucket, first, last))
            waiting = next(buckets, None)
        while open_ and open_[0][3] < place:
            heappop(open_)
        cost.append(open_[0][0] if open_ else cost[-1])
        taken.append((open_[0][1], open_[0][2]) if open_ else None)
    return [*reversed(list(followed(taken)))]


def followed(taken: Sequence[tuple[int, int] | None]) -> Iterator[int]:
    place = len(taken) - 1
    while place >= 0:
        one = taken[place]
        if one:
            yield one[0]
        place = one[1] - 1 if one else place - 1


def singles(shape: Shape, needs: Mapping[int, int], found: Sequence[int], factor: float) -> Iterator[int]:
    """What a cover for larger needs leaves, total by total: the smallest bucket that serves it, if any does."""
    room = Room({bucket: shape.captured(bucket) for bucket in sorted(found)}, factor)
    for total, rows in needs.items():
        near = range(total, int(factor * total) + 1) if room.most(total) < rows else ()
        yield from [bucket for bucket in near if shape.captured(bucket) >= rows][:1]


class Room:
    """The rows of captured buckets, looked up by the tokens of a batch."""

    def __init__(self, captured: Mapping[int, int], factor: float) -> None:
        self.buckets, self.rows, self.factor = [*captured], [*captured.values()], factor

    def most(self, total: int) -> int:
        """The most rows of a bucket that holds so many tokens without too much padding; -1 if there is none."""
        near = slice(bisect_left(self.buckets, total), bisect_right(self.buckets, self.factor * total))
        return max(self.rows[near], default=-1)
