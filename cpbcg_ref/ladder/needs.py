"""The most rows that any active batch of so many tokens needs, and the smallest batch that needs more than some.

Zigzag on n ranks, u = 2n blocks. A request has u x base + remainder tokens, base >= 1: 2 rows of each base on every
rank; on rank r one more if the remainder exceeds r, and another if it exceeds u - 1 - r. So such extra rows cost r + 1
or, two together, u - r tokens of remainder. What makes it fast, and what tests compare with all small batches:

* Splitting u tokens off a request changes no load: requests of 2u tokens or more are not needed if another one may be.
* Then rank 0 can be given as much as any, for two requests or more. Extra rows of rank r, in pairs: 2 and 0 are had on
  rank 0 as 1 and 1. 2 and 1 have at least u + 1 tokens of remainder: a third request with 1. 2 and 2 have 2u - 2r: a
  third request with 2. A 2 that is left over makes three of them: a fourth request with 4. Other 1 and 0 stay.
* k requests have n x load <= T + k (n - 1) and load <= T - (u - 2) k: few numbers of requests can beat a good one.
"""

from functools import lru_cache

from cpbcg_ref.errors import check
from cpbcg_ref.ladder.shape import Shape, load


def rows(shape: Shape, tokens: int) -> int:
    """Rows that the worst active batch of so many tokens needs; 0 if there is no such batch.

    >>> rows(Shape(cp_size=4, context_length=64), 27)
    16
    """
    check(int, what="the tokens of the batch", tokens=tokens)
    return shape.aligned(most(shape, tokens)) if shape.requests(tokens) else 0


def most(shape: Shape, tokens: int) -> int:
    """Rows of the largest rank of that batch."""
    n, u = shape.cp_size, 2 * shape.cp_size
    few, many = shape.requests(tokens)[0], shape.requests(tokens)[-1]
    if not shape.zigzag:
        return -(-tokens // n)
    if tokens < 2 * u:  # one request: its loads grow or fall from rank to rank
        return max(load(rank, tokens, n) for rank in (0, n - 1))
    good = {min(max(count, few), many) for count in (tokens // (u + 1), tokens // (u + 1) + 1)}
    if many == tokens // u:
        return max(2 * count + min(count, tokens - u * count) for count in good)
    best = max(of_rank(shape, 0, count, tokens) for count in good)
    better = range(-((tokens - n * (best + 1)) // (n - 1)), min(many, (tokens - best - 1) // (u - 2)) + 1)
    return max([best, *(of_any(shape, count, tokens) for count in better if count >= few)])


def of_any(shape: Shape, requests: int, tokens: int) -> int:
    return max(of_rank(shape, rank, requests, tokens) for rank in range(shape.cp_size))


def of_rank(shape: Shape, rank: int, requests: int, tokens: int) -> int:
    """The most rows on a rank that exactly so many requests have. -1: there is no such active batch."""
    u = 2 * shape.cp_size
    fewer = tokens - 2 * u * requests
    if fewer > u and tokens <= u * requests * (shape.context_length // u - 1):  # neither end is near: periodic
        return searched(shape, rank, requests, tokens - fewer // u * u) + fewer // u * 2
    return searched(shape, rank, requests, tokens)


@lru_cache(maxsize=2**17)
def searched(shape: Shape, rank: int, requests: int, tokens: int) -> int:
    """The same, by looking at how many of the tokens are whole bases."""
    n, u = shape.cp_size, 2 * shape.cp_size
    whole, within = divmod(shape.context_length, u)
    bases = range(max(requests, -(-(tokens - requests * (u - 1)) // u)), min(tokens // u, requests * whole) + 1)
    tried: set[int] | range = bases
    if bases and bases[-1] <= requests * (whole - 1):  # any remainder fits: best where a kind of extra rows is used up
        near = {(tokens - requests * cost) // u + more for cost in (rank + 1, u - rank) for more in (0, 1)}
        tried = {min(max(base, bases[0]), bases[-1]) for base in near}
    best = -1
    for base in tried:
        free, remainder = min(requests, requests * whole - base), tokens - u * base
        if remainder <= free * (u - 1) + (requests - free) * within:
            best = max(best, 2 * base + extra(rank, n, remainder, requests, free, within))
    return best


def extra(rank: int, n: int, remainder: int, requests: int, free: int, within: int) -> int:
    """The most extra rows on a rank if the requests' remainders sum to `remainder`, all but `free` of them <= `within`.

    Two rows at once come first where they cost no more than twice one, else one row of each request comes first.
    """
    one, two = rank + 1, 2 * n - rank
    some = requests if one <= within else free
    twos = 0 if rank == 0 else some if two <= within else min(some, free)
    if two <= 2 * one:
        pairs = min(twos, remainder // two)
        return 2 * pairs + min(some - pairs, (remainder - two * pairs) // one)
    ones = min(some, remainder // one)
    return ones + min(twos, ones, (remainder - one * ones) // (two - one))


def smallest(shape: Shape, tokens: int, *, above: int) -> tuple[int, ...]:
    """Of the active batches of so many tokens that need more than `above` rows: fewest requests, then lexicographic.

    >>> smallest(Shape(cp_size=4, context_length=64), 27, above=8)
    (9, 9, 9)
    """
    counts = shape.requests(tokens)
    if not shape.zigzag:
        full = counts.start - 1
        return (tokens - full * shape.context_length, *[shape.context_length] * full)
    least = -((tokens - shape.cp_size * (above + 1)) // (shape.cp_size - 1))
    counts = range(max(counts.start, least), counts.stop)
    count = next(count for count in counts if of_any(shape, count, tokens) > above)
    return in_order(shape, count, tokens, above)


def in_order(shape: Shape, requests: int, tokens: int, above: int) -> tuple[int, ...]:
    """Each length the shortest with which the others can still make some rank exceed `above` rows."""
    ranks = range(shape.cp_size)
    chosen: list[int] = []
    loads = [0 for _ in ranks]
    length = shape.shortest
    for others in range(requests - 1, 0, -1):
        length = max(length, tokens - others * shape.context_length)
        while not any(
            loads[rank] + load(rank, length, shape.cp_size) + of_rank(shape, rank, others, tokens - length) > above
            for rank in ranks
        ):
            length += 1
        chosen, tokens = [*chosen, length], tokens - length
        loads = [loads[rank] + load(rank, length, shape.cp_size) for rank in ranks]
    return (*chosen, tokens)
