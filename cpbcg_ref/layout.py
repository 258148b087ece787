"""How a prefill batch is spread over the n ranks of a context-parallel (CP) group: section 1 of the specification.

A batch is its extend lengths, in tokens; its tokens are numbered 0 to T - 1 in batch order. A strategy says which of
them a rank owns and in which order they stand there, its local rows. All ranks pad to the same physical rows.

    zigzag, n = 2, lengths [5, 4]     request 0 in four blocks: 01 2 3 4      request 1: 5 6 7 8
        rank 0   0 1 5 | 4 8 .        early blocks of all requests | late blocks of all requests | padding
        rank 1   2 6 | 3 7 . .
    interleave, n = 2, T = 5
        rank 0   0 2 4 .              rank 1   1 3 . .
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TypeVar

from cpbcg_ref.errors import check, check_tokens, refuse

T = TypeVar("T")
PerRank = tuple[tuple[T, ...], ...]  # one entry per rank, in local row order
Segment = tuple[int, int]  # (rows, keys): the last of `rows` consecutive rows sees `keys` keys, each before it one less
Lengths = Sequence[int]


class Zigzag:
    """Cut each request into 2n blocks; rank r owns block r (early) and block 2n - 1 - r (late) of every request."""

    multiple = 2  # physical rows are a multiple of 2n
    needs = "every request has a token for each of its 2 x cp_size blocks"

    def can_shard(self, lengths: Lengths, n: int) -> bool:
        return min(lengths, default=0) >= 2 * n

    def loads(self, lengths: Lengths, n: int) -> list[int]:
        first, beyond = self.spread(lengths, n)
        return [first + rows for rows in beyond]

    def most(self, lengths: Lengths, n: int) -> int:
        first, beyond = self.spread(lengths, n)
        return first + max(beyond)

    def spread(self, lengths: Lengths, n: int) -> tuple[int, list[int]]:
        """Rows of rank 0, and each rank's beyond those. From rank r - 1 to r, requests whose remainder is r lose a row
        in the early block; those in whose remainder r tokens are missing gain one in the late block."""
        blocks = 2 * n
        count = [0] * blocks
        for length in lengths:  # counted by their remainder
            count[length % blocks] += 1
        beyond = [0]
        for rank in range(1, n):
            beyond.append(beyond[-1] - count[rank] + count[-rank])
        return (sum(lengths) - sum(beyond)) // n, beyond

    def pieces(self, lengths: Lengths, n: int) -> list[list[range]]:
        """Per rank its blocks: the early ones of all requests, then the late ones."""
        edges = []
        for length, start in zip(lengths, accumulate(lengths, initial=0), strict=False):
            base, remainder = divmod(length, 2 * n)  # the first blocks have one token of the remainder each
            edges.append([start + block * base + min(block, remainder) for block in range(2 * n + 1)])
        owned = [(rank, 2 * n - 1 - rank) for rank in range(n)]
        return [[range(at[block], at[block + 1]) for block in pair for at in edges] for pair in owned]


class Interleave:
    """Round robin: token t of the batch belongs to rank t % n, whatever request it is of."""

    multiple = 1
    needs = "the batch has a token for each of cp_size ranks"

    def can_shard(self, lengths: Lengths, n: int) -> bool:
        return sum(lengths) >= n

    def loads(self, lengths: Lengths, n: int) -> list[int]:
        return [len(range(rank, sum(lengths), n)) for rank in range(n)]

    def most(self, lengths: Lengths, n: int) -> int:
        return -(-sum(lengths) // n)

    def pieces(self, lengths: Lengths, n: int) -> list[list[range]]:
        """One token each: neighbours on a rank are n positions apart, or of different requests."""
        return [[range(token, token + 1) for token in range(rank, sum(lengths), n)] for rank in range(n)]


Strategy = Zigzag | Interleave
STRATEGIES: dict[str, Strategy] = {"zigzag": Zigzag(), "interleave": Interleave()}


def strategy_for(lengths: Lengths, cp_size: int, name: str) -> Strategy:
    """The strategy of this name, once the batch and its group are checked."""
    if type(name) is not str or name not in STRATEGIES:
        refuse("strategy", name, f"choose one of {', '.join(STRATEGIES)}")
    if type(cp_size) is not int or cp_size < 1:
        refuse("cp_size", cp_size, "the number of CP ranks (1: no CP) is an integer >= 1")
    check_tokens(lengths)
    return STRATEGIES[name]


def extend_lengths(seq_lens: Lengths, *, prefixes: Lengths) -> tuple[int, ...]:
    """Tokens left to extend when `prefixes` tokens of each sequence are cached: 3 of 100 behind a prefix of 97."""
    check_tokens(seq_lens, name="seq_lens", what="a sequence length")
    check_tokens(prefixes, name="prefixes", what="a cached prefix", requests=len(seq_lens))
    for i, (prefix, seq_len) in enumerate(zip(prefixes, seq_lens, strict=True)):
        if prefix > seq_len:
            refuse(f"prefixes[{i}]", prefix, f"a cached prefix is no longer than its sequence of {seq_len} tokens")
    return tuple(seq_len - prefix for prefix, seq_len in zip(prefixes, seq_lens, strict=True))


def per_rank_logical_tokens(lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> tuple[int, ...]:
    """Rows that each rank really owns, without padding: (513, 511, 512, 512) for [1534, 161, 353] on 4 ranks."""
    return tuple(strategy_for(lengths, cp_size, strategy).loads(lengths, cp_size))


def required_local_tokens(
    lengths: Lengths | None, *, cp_size: int, strategy: str = "zigzag", alignment: int | None = None
) -> int | None:
    """Physical rows, the same on every rank: the largest rank's rows, rounded up to the alignment.

    None for unknown lengths and for an empty batch: nothing can be chosen, the batch runs eager.

    >>> required_local_tokens([1534, 161, 353], cp_size=4)
    520
    """
    layout = strategy_for(() if lengths is None else lengths, cp_size, strategy)
    if alignment is not None:
        check(int, least=1, what="the unit of physical rows", alignment=alignment)
    return aligned_rows(lengths, cp_size, layout, alignment) if lengths else None


def aligned_rows(lengths: Lengths, cp_size: int, layout: Strategy, alignment: int | None) -> int:
    """The required rows themselves, for what was checked."""
    unit = alignment or (layout.multiple * cp_size if cp_size > 1 else 1)
    return -(-layout.most(lengths, cp_size) // unit) * unit


def is_cp_active(lengths: Lengths | None, *, cp_size: int, strategy: str = "zigzag") -> bool:
    """Is this batch sharded? Judged on extend tokens, so a prefix hit can turn CP off. Unknown lengths: no."""
    layout = strategy_for(() if lengths is None else lengths, cp_size, strategy)
    return lengths is not None and cp_size > 1 and layout.can_shard(lengths, cp_size)


def local_tokens(lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> PerRank[int]:
    """The tokens that each rank owns, in local row order: ((0, 1, 5, 4, 8), (2, 6, 3, 7)) for [5, 4] on 2 ranks."""
    pieces = strategy_for(lengths, cp_size, strategy).pieces(lengths, cp_size)
    return tuple(tuple(chain.from_iterable(own)) for own in pieces)


def kv_segments(
    lengths: Lengths, *, cp_size: int, prefixes: Lengths | None = None, strategy: str = "zigzag"
) -> PerRank[Segment]:
    """How many keys the rows see, cached prefixes included; a block without tokens has no segment.

    >>> kv_segments([3670], cp_size=4, prefixes=[1])[0]
    ((459, 460), (458, 3671))
    """
    pieces = strategy_for(lengths, cp_size, strategy).pieces(lengths, cp_size)
    prefixes = [0] * len(lengths) if prefixes is None else prefixes
    check_tokens(prefixes, name="prefixes", what="a cached prefix", requests=len(lengths))
    keys = [prefix + i + 1 for length, prefix in zip(lengths, prefixes, strict=True) for i in range(length)]
    return tuple(tuple((len(piece), keys[piece[-1]]) for piece in own if piece) for own in pieces)


def shard(
    values: Sequence[T], lengths: Lengths, *, cp_size: int, pad: T, strategy: str = "zigzag", rows: int | None = None
) -> PerRank[T]:
    """Each rank's share of `values`, one per token, padded at its end to `rows`, or to the required ones if None.

    >>> shard("abcdefghi", [5, 4], cp_size=2, pad=".", rows=6)
    (('a', 'b', 'f', 'e', 'i', '.'), ('c', 'g', 'd', 'h', '.', '.'))
    """
    owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
    layout = STRATEGIES[strategy]
    if not layout.can_shard(lengths, cp_size):
        refuse("lengths", lengths, f"{layout.needs} (cp_size {cp_size}); run this batch without CP")
    if len(values) != sum(lengths):
        refuse("len(values)", len(values), f"pass one value for each of the batch's {sum(lengths)} tokens")
    if rows is None:
        rows = required_local_tokens(lengths, cp_size=cp_size, strategy=strategy) or 0
    check(int, least=max(map(len, owned)), what="physical rows, at least what a rank owns,", rows=rows)
    return tuple(tuple(values[token] for token in tokens) + (pad,) * (rows - len(tokens)) for tokens in owned)


def gather(local: Sequence[Sequence[T]], lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> tuple[T, ...]:
    """Undo `shard`: all-gather the physical rows, rank-major, drop the padding, put the tokens back in batch order."""
    owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
    sizes = [len(rows) for rows in local]
    if len(sizes) != cp_size or len(set(sizes)) != 1:
        refuse("rows per rank", sizes, f"an all-gather takes the same number of rows from each of {cp_size} ranks")
    check(int, least=max(map(len, owned)), what="physical rows, at least what a rank owns,", rows=sizes[0])
    live = dict(chain.from_iterable(map(zip, owned, local)))  # zip ends with the tokens, before the padding
    return tuple(live[token] for token in range(sum(lengths)))
