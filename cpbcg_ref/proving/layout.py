"""Theorems about one zigzag layout: blocks, loads of ranks, the way back."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import z3

import cpbcg_ref
from cpbcg_ref.proving.closed import RANKS, Request, extra, k, n, other, rank, request, times
from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import Number, number, paths
from cpbcg_ref.proving.targets import symbolic_library

EXECUTED = (1, 2, 3, 4, 8)  # ranks; a list needs a number of ranks that is known


def rows(lengths: list[int], cp_size: int) -> tuple[int, ...]:
    return cpbcg_ref.per_rank_logical_tokens(lengths, cp_size=cp_size)


def blocks(length: Number, cp_size: int) -> list[Number]:
    """Tokens in each block of a request, early ones first, as the library cuts it."""
    pieces = symbolic_library().layout.Zigzag().pieces([length], cp_size)
    return [early.length for early, _ in pieces] + [late.length for _, late in reversed(pieces)]


def whole_length() -> Iterable[Obligation]:
    """Executed, and for any number of ranks by induction on the blocks: those below m have m base and of the remainder
    what reaches them."""
    one, m = request(), z3.Int("m")

    def below(m: Any) -> Any:
        return z3.If(one.remainder < m, one.remainder, m)

    given = (*RANKS, *one.given)
    yield Obligation(given, below(0) == 0, "no block")
    step = below(m) + z3.If(m < one.remainder, 1, 0) == below(m + 1)
    yield Obligation((*given, m >= 0, m < 2 * n), step, "one block more")
    yield Obligation(given, 2 * one.even + below(2 * n) == one.length, "all blocks")
    length = number("length")
    for cp_size in EXECUTED:
        for way, cut in paths(partial(blocks, length, cp_size), length.term >= 0):
            sizes = [block.term for block in cut]
            sums = z3.And(z3.Sum(*sizes) == length.term, *[size >= 0 for size in sizes])
            yield Obligation(tuple(way), sums, f"{cp_size} ranks")


def equal_blocks() -> Iterable[Obligation]:
    length = number("length")
    for given, cut in paths(lambda: blocks(length, 2), length.term >= 0):
        yield Obligation(tuple(given), z3.And(*[block.term == cut[0].term for block in cut]))


def cut_unevenly(model: dict[str, int]) -> str:
    pieces = cpbcg_ref.layout.STRATEGIES["zigzag"].pieces([model["length"]], 2)
    sizes = [len(piece) for own in pieces for piece in own]
    return f"{model['length']} tokens on 2 ranks: blocks of {sizes}" if len({*sizes}) > 1 else ""


def sum_of_loads() -> Iterable[Obligation]:
    """By induction on the ranks: those below m have, of the remainder, what reaches their two blocks."""
    one, m = request(), z3.Int("m")

    def below(m: Any) -> Any:
        early = z3.If(one.remainder < m, one.remainder, m)
        late = one.remainder - (2 * n - m)
        return early + z3.If(late > 0, late, 0)

    given = (*RANKS, *one.given)
    yield Obligation(given, below(0) == 0, "no rank")
    step = below(m) + extra(m, one.remainder) == below(m + 1)
    yield Obligation((*given, m >= 0, m < n), step, "one rank more")
    yield Obligation(given, below(n) == one.remainder, "all ranks")


def few(one: Request) -> tuple[Any, ...]:
    """Few enough ranks and tokens to show."""
    return (*RANKS, *one.given, n <= 8, one.base == 1, one.even == n)


def equal_shares() -> Iterable[Obligation]:
    one = request()
    given = few(one)
    yield Obligation(given, times(extra(rank, one.remainder), n) == one.remainder)


def balance() -> Iterable[Obligation]:
    one = request()
    gap = extra(rank, one.remainder) - extra(other, one.remainder)
    yield Obligation((*RANKS, *one.given), z3.And(gap <= 1, gap >= -1), "two ranks")


def no_gap() -> Iterable[Obligation]:
    one = request()
    equal = extra(rank, one.remainder) == extra(other, one.remainder)
    yield Obligation(few(one), equal)


def uneven(model: dict[str, int]) -> str:
    ranks, length = model["cp_size"], model["remainder"] + 2 * model["cp_size"]
    loads = rows([length], ranks)
    return f"{length} tokens on {ranks} ranks: rows {list(loads)}" if len({*loads}) > 1 else ""


def unequal_share(model: dict[str, int]) -> str:
    return uneven(model) if model["remainder"] % model["cp_size"] else ""


def restored() -> Iterable[Obligation]:
    """Gathered rank by rank, each with the early blocks of k requests and then the late ones, block c of request i
    stands at the place of `place`; `back` finds request and block from a place."""
    i, block = z3.Ints("request block")
    r, j = z3.Ints("place_rank place_within")
    early = block < n
    owner = z3.If(early, block, 2 * n - 1 - block)
    within = z3.If(early, i, k + i)
    given = (n >= 1, k >= 1, i >= 0, i < k, block >= 0, block < 2 * n)
    place = z3.And(owner >= 0, owner < n, within >= 0, within < 2 * k)
    yield Obligation(given, place, "every block has a place")
    request_at, block_at = z3.If(j < k, j, j - k), z3.If(j < k, r, 2 * n - 1 - r)
    there = z3.And(request_at == i, block_at == block)
    yield Obligation((*given, r == owner, j == within), there, "back from its place")
    found = z3.And(request_at >= 0, request_at < k, block_at >= 0, block_at < 2 * n)
    anywhere = (n >= 1, k >= 1, r >= 0, r < n, j >= 0, j < 2 * k)
    yield Obligation(anywhere, found, "every place has a block")
    again_owner = z3.If(block_at < n, block_at, 2 * n - 1 - block_at)
    again_within = z3.If(block_at < n, request_at, k + request_at)
    yield Obligation(anywhere, z3.And(again_owner == r, again_within == j), "there and back")


def in_block_order() -> Iterable[Obligation]:
    """As if what is gathered stood in the order of the blocks already."""
    i, block = z3.Ints("request block")
    owner = z3.If(block < n, block, 2 * n - 1 - block)
    given = (n >= 1, n <= 8, i == 0, k == 1, block >= 0, block < 2 * n)
    yield Obligation(given, 2 * owner + z3.If(block < n, 0, 1) == block)


def out_of_order(model: dict[str, int]) -> str:
    ranks = model["cp_size"]
    gathered = [token for own in cpbcg_ref.local_tokens([2 * ranks], cp_size=ranks) for token in own]
    return f"{2 * ranks} tokens on {ranks} ranks are gathered as {gathered}" if sorted(gathered) != gathered else ""


THEOREMS = (
    Theorem(
        name="blocks-sum",
        statement="The blocks of a request of any length sum to it, for any number of ranks; the library's own code "
        "cuts it so, and none is negative, on 1, 2, 3, 4 and 8 ranks.",
        claim=whole_length,
        wrong="All blocks of a request are equally long.",
        control=equal_blocks,
        replay=cut_unevenly,
    ),
    Theorem(
        name="loads-sum",
        statement="The rows of all ranks sum to the tokens of the batch, for any number of ranks and requests.",
        claim=sum_of_loads,
        wrong="Every rank gets its share of the remainder, remainder / n.",
        control=equal_shares,
        replay=unequal_share,
    ),
    Theorem(
        name="balance",
        statement="The rows of one request differ by at most 1 between two ranks, for any number of ranks.",
        claim=balance,
        wrong="They do not differ.",
        control=no_gap,
        replay=uneven,
    ),
    Theorem(
        name="restore-inverse",
        statement="The index that puts gathered blocks back in request order is the inverse of the one that spread "
        "them, for any number of requests and ranks.",
        claim=restored,
        wrong="Gathered blocks stand in order already.",
        control=in_block_order,
        replay=out_of_order,
    ),
)
