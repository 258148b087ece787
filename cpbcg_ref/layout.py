"""How a prefill batch is spread over the n ranks of a context-parallel (CP) group: section 1 of the specification.

A batch is its extend lengths, in tokens; its tokens are numbered 0 to T - 1 in batch order. A strategy says which of
them a rank owns and in which order they stand there, its local rows. All ranks pad to the same physical rows.

    zigzag, n = 2, lengths [5, 4]     request 0 in four blocks: 01 2 3 4      request 1: 5 6 7 8
        rank 0   0 1 5 | 4 8 .        early blocks of all requests | late blocks of all requests | padding
        rank 1   2 6 | 3 7 . .
    interleave, n = 2, T = 5
        rank 0   0 2 4 .
        rank 1   1 3 . .
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from operator import sub
from typing import ClassVar, TypeVar

from cpbcg_ref.checks import check_group, check_rows, check_tokens, refuse

T = TypeVar("T")
PerRank = tuple[tuple[T, ...], ...]  # one entry per rank, in local row order
Segment = tuple[int, int]  # (rows, keys): the last of `rows` consecutive rows sees `keys` keys, each before it one less
Lengths = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Zigzag:
    """Cut each request into 2n blocks; rank r owns block r (early) and block 2n - 1 - r (late) of every request."""

    cp_size: int
    alignment: int | None = None  # None: the strategy's own
    needs: ClassVar[str] = "every request has a token for each of its 2 x cp_size blocks"

    def __post_init__(self) -> None:
        check_group(self.cp_size, self.alignment)

    @property
    def unit(self) -> int:
        """Fewest tokens that give every block one; physical rows are a multiple of it."""
        return 2 * self.cp_size

    def can_shard(self, lengths: Lengths) -> bool:
        return bool(lengths) and min(lengths) >= self.unit

    def block_sizes(self, length: int) -> tuple[int, ...]:
        """The remainder goes to the first blocks, one token each: 9 tokens on 2 ranks are cut 3, 2, 2, 2."""
        base, remainder = divmod(length, self.unit)
        return tuple(base + (block < remainder) for block in range(self.unit))

    def loads(self, lengths: Lengths) -> list[int]:
        """Rows that each rank owns, in one pass over the requests and one over the ranks.

        Block i has an extra token in each request whose remainder exceeds i, that is in reach[2n - 1 - i] requests;
        without the extras all ranks own the same.
        """
        blocks = self.unit
        count = [0] * blocks
        for length in lengths:
            count[length % blocks] += 1
        reach = [0, *accumulate(count[:0:-1])]
        even = (sum(lengths) - sum(reach)) // self.cp_size
        return [even + reach[rank] + reach[-1 - rank] for rank in range(self.cp_size)]

    def tokens(self, lengths: Lengths) -> list[list[int]]:
        return [list(chain.from_iterable(blocks)) for blocks in self.blocks(lengths, accumulate(lengths, initial=0))]

    def segments(self, lengths: Lengths, prefixes: Lengths) -> list[list[Segment]]:
        return [[(len(rows), rows.stop) for rows in blocks if rows] for blocks in self.blocks(lengths, prefixes)]

    def blocks(self, lengths: Lengths, starts: Iterable[int]) -> list[list[range]]:
        """Per rank, its blocks in local row order, where `starts` says at which number each request begins."""
        requests = zip(lengths, starts, strict=False)
        edges = [list(accumulate(self.block_sizes(length), initial=start)) for length, start in requests]
        owned = [(rank, self.unit - 1 - rank) for rank in range(self.cp_size)]
        return [[range(at[block], at[block + 1]) for block in pair for at in edges] for pair in owned]


@dataclass(frozen=True, kw_only=True)
class Interleave:
    """Round robin: token t of the batch belongs to rank t % n, whatever request it is of."""

    cp_size: int
    alignment: int | None = None
    needs: ClassVar[str] = "the batch has a token for each of cp_size ranks"

    def __post_init__(self) -> None:
        check_group(self.cp_size, self.alignment)

    @property
    def unit(self) -> int:
        return self.cp_size

    def can_shard(self, lengths: Lengths) -> bool:
        return sum(lengths) >= self.unit

    def loads(self, lengths: Lengths) -> list[int]:
        return [len(tokens) for tokens in self.tokens(lengths)]

    def tokens(self, lengths: Lengths) -> list[range]:
        return [range(rank, sum(lengths), self.cp_size) for rank in range(self.cp_size)]

    def segments(self, lengths: Lengths, prefixes: Lengths) -> list[list[Segment]]:
        """One row each: neighbours on a rank are n positions apart, or of different requests."""
        keys = [prefix + i + 1 for length, prefix in zip(lengths, prefixes, strict=True) for i in range(length)]
        return [[(1, keys[token]) for token in tokens] for tokens in self.tokens(lengths)]


Strategy = Zigzag | Interleave
STRATEGIES: dict[str, type[Strategy]] = {"zigzag": Zigzag, "interleave": Interleave}


@lru_cache(maxsize=256, typed=True)  # typed: 1, True and 1.0 are different input
def strategy_named(name: str, *, cp_size: int, alignment: int | None = None) -> Strategy:
    """The strategy called "zigzag" or "interleave"."""
    if name not in STRATEGIES:
        refuse("strategy", name, f"choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name](cp_size=cp_size, alignment=alignment)


def extend_lengths(seq_lens: Lengths, *, prefixes: Lengths) -> tuple[int, ...]:
    """Tokens left to extend when `prefixes` tokens of each sequence are cached: 3 of 100 behind a prefix of 97."""
    check_tokens(seq_lens, name="seq_lens", what="a sequence length")
    check_tokens(prefixes, name="prefixes", what="a cached prefix", requests=len(seq_lens))
    for i, (prefix, seq_len) in enumerate(zip(prefixes, seq_lens, strict=True)):
        if prefix > seq_len:
            refuse(f"prefixes[{i}]", prefix, f"a cached prefix is no longer than its sequence of {seq_len} tokens")
    return tuple(map(sub, seq_lens, prefixes))


def per_rank_logical_tokens(lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> tuple[int, ...]:
    """Rows that each rank really owns, without padding.

    >>> per_rank_logical_tokens([1534, 161, 353], cp_size=4)
    (513, 511, 512, 512)
    """
    check_tokens(lengths)
    return tuple(strategy_named(strategy, cp_size=cp_size).loads(lengths))


def required_local_tokens(
    lengths: Lengths | None, *, cp_size: int, strategy: str = "zigzag", alignment: int | None = None
) -> int | None:
    """Physical rows, the same on every rank: the largest rank's rows, rounded up to the alignment.

    None for unknown lengths and for an empty batch: nothing can be chosen, the batch runs eager.

    >>> required_local_tokens([1534, 161, 353], cp_size=4)
    520
    """
    layout = strategy_named(strategy, cp_size=cp_size, alignment=alignment)
    check_tokens(() if lengths is None else lengths)
    if not lengths:
        return None
    multiple = alignment or (layout.unit if cp_size > 1 else 1)
    return -(-max(layout.loads(lengths)) // multiple) * multiple


def is_cp_active(lengths: Lengths | None, *, cp_size: int, strategy: str = "zigzag") -> bool:
    """Is this batch sharded? Judged on extend tokens, so a prefix hit can turn CP off. Unknown lengths: no."""
    layout = strategy_named(strategy, cp_size=cp_size)
    check_tokens(() if lengths is None else lengths)
    return lengths is not None and cp_size > 1 and layout.can_shard(lengths)


def local_tokens(lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> PerRank[int]:
    """The tokens that each rank owns, in local row order: ((0, 1, 5, 4, 8), (2, 6, 3, 7)) for [5, 4] on 2 ranks."""
    check_tokens(lengths)
    return tuple(map(tuple, strategy_named(strategy, cp_size=cp_size).tokens(lengths)))


def kv_segments(
    lengths: Lengths, *, cp_size: int, prefixes: Lengths | None = None, strategy: str = "zigzag"
) -> PerRank[Segment]:
    """How many keys the rows see, cached prefixes included; a block without tokens has no segment.

    >>> kv_segments([3670], cp_size=4, prefixes=[1])[0]
    ((459, 460), (458, 3671))
    """
    check_tokens(lengths)
    prefixes = [0] * len(lengths) if prefixes is None else prefixes
    check_tokens(prefixes, name="prefixes", what="a cached prefix", requests=len(lengths))
    return tuple(map(tuple, strategy_named(strategy, cp_size=cp_size).segments(lengths, prefixes)))


def shard(
    values: Sequence[T], lengths: Lengths, *, cp_size: int, pad: T, strategy: str = "zigzag", rows: int | None = None
) -> PerRank[T]:
    """Each rank's share of `values`, one per token, padded at its end with `pad` to the physical rows.

    `rows` replaces `required_local_tokens`, as the capacity of a captured graph does.

    >>> shard("abcdefghi", [5, 4], cp_size=2, pad=".", rows=6)
    (('a', 'b', 'f', 'e', 'i', '.'), ('c', 'g', 'd', 'h', '.', '.'))
    """
    owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
    layout = strategy_named(strategy, cp_size=cp_size)
    if not layout.can_shard(lengths):
        refuse("lengths", lengths, f"{layout.needs} (cp_size {cp_size}); run this batch without CP")
    if len(values) != sum(lengths):
        refuse("len(values)", len(values), f"pass one value for each of the batch's {sum(lengths)} tokens")
    if rows is None:
        rows = required_local_tokens(lengths, cp_size=cp_size, strategy=strategy) or 0
    check_rows(rows, most=max(map(len, owned)))
    return tuple(tuple(values[token] for token in tokens) + (pad,) * (rows - len(tokens)) for tokens in owned)


def gather(local: Sequence[Sequence[T]], lengths: Lengths, *, cp_size: int, strategy: str = "zigzag") -> tuple[T, ...]:
    """Undo `shard`: all-gather the physical rows, rank-major, drop the padding, put the tokens back in batch order."""
    owned = local_tokens(lengths, cp_size=cp_size, strategy=strategy)
    sizes = [len(rows) for rows in local]
    if len(sizes) != cp_size or len(set(sizes)) != 1:
        refuse("rows per rank", sizes, f"an all-gather takes the same number of rows from each of {cp_size} ranks")
    check_rows(sizes[0], most=max(map(len, owned)))
    live: dict[int, T] = {}
    for rows, tokens in zip(local, owned, strict=True):
        live.update(zip(tokens, rows, strict=False))
    return tuple(live[token] for token in range(sum(lengths)))
