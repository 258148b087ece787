"""Who owns which token and which keys it sees, by definition: tokens are dealt and cut one by one, keys are sets.

Nothing here is fast and nothing is a formula: this is what the answers of an engine are judged by.
"""

from functools import lru_cache
from itertools import count

Owned = tuple[tuple[int, ...], ...]  # per rank, indices of tokens in the batch, in local row order
Places = tuple[tuple[int, int], ...]  # per token, (request, position in its own sequence)


def block_sizes(length: int, *, cp_size: int, blocks: str = "balanced") -> list[int]:
    """Tokens of each of the 2 * cp_size blocks of one request.

    >>> block_sizes(11, cp_size=4), block_sizes(11, cp_size=4, blocks="ceil")
    ([2, 2, 2, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 1, 0, 0])
    """
    sizes = [0] * (2 * cp_size)
    chunk = next(size for size in count() if size * len(sizes) >= length)
    for token in range(length):
        sizes[token // chunk if blocks == "ceil" else token % len(sizes)] += 1
    return sizes


@lru_cache(maxsize=256)
def owned_tokens(lengths: tuple[int, ...], cp_size: int, strategy: str, blocks: str = "balanced") -> Owned:
    """Tokens of every rank in local row order: early blocks of all requests, then late ones; or round robin.

    >>> owned_tokens((5, 4), 2, "zigzag")
    ((0, 1, 5, 4, 8), (2, 6, 3, 7))
    """
    ranks = range(cp_size)
    if strategy == "interleave":
        return tuple(tuple(token for token in range(sum(lengths)) if token % cp_size == rank) for rank in ranks)
    tokens = iter(range(sum(lengths)))
    sizes = [block_sizes(length, cp_size=cp_size, blocks=blocks) for length in lengths]
    requests = [[[next(tokens) for _ in range(size)] for size in request] for request in sizes]
    pairs = [(rank, 2 * cp_size - 1 - rank) for rank in ranks]
    return tuple(tuple(t for block in pair for request in requests for t in request[block]) for pair in pairs)


@lru_cache(maxsize=256)
def live_rows(lengths: tuple[int, ...], cp_size: int, strategy: str, blocks: str = "balanced") -> tuple[int, ...]:
    """Rows that every rank really owns."""
    return tuple(len(tokens) for tokens in owned_tokens(lengths, cp_size, strategy, blocks))


def smallest_multiple(rows: int, unit: int) -> int:
    """The first multiple of `unit` that holds `rows`, found by looking."""
    return next(size for size in count(rows) if size % unit == 0)


@lru_cache(maxsize=256)
def places(lengths: tuple[int, ...], prefixes: tuple[int, ...]) -> Places:
    """Of every token of the batch; its position counts the cached prefix."""
    pairs = enumerate(zip(lengths, prefixes, strict=True))
    return tuple((request, prefix + i) for request, (length, prefix) in pairs for i in range(length))


def causal_keys(position: int) -> range:
    """Keys that a row at this position sees: itself and everything before it. A range is a set without the memory."""
    return range(position + 1)


def shardable(
    lengths: tuple[int, ...],
    cp_size: int,
    strategy: str,
    *,
    min_length: int = 2,
    divides: int = 0,
    max_requests: int = 0,
) -> bool:
    """Is CP active for a batch of these extend lengths. `min_length` and `divides` count in cp_size tokens.

    >>> shardable((8, 8), 2, "zigzag"), shardable((8, 8), 2, "zigzag", max_requests=1)
    (True, False)
    """
    step = max(1, divides * cp_size)
    if cp_size < 2 or not lengths or min(lengths) < 0 or any(length % step for length in lengths):
        return False
    if max_requests and len(lengths) > max_requests:
        return False
    if strategy == "interleave":
        return sum(lengths) >= cp_size
    return all(length >= min_length * cp_size for length in lengths)
