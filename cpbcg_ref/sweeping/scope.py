"""What a sweep looks at, cut into parts that are asked one by one: plain values, which travel and are resumed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import comb
from typing import Any

from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.errors import refuse
from cpbcg_ref.oracles.tokens import shardable

MOST = 8_192  # batches of a part
TOO_MANY = 10**9  # weeks, at some thousand a second
WHAT = ("batches", "negotiation")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How far a sweep goes.

    cp_sizes, requests, length: batches of up to so many requests of up to `length` tokens (0: 4 x cp_size - 1, and
    2 x cp_size - 1 for interleave, so that each remainder comes once). ranks, depth: ranks of the negotiation, and
    passes of a trace at most.
    """

    what: tuple[str, ...] = WHAT
    cp_sizes: tuple[int, ...] = (2, 4)
    requests: int = 5
    length: int = 0
    ranks: int = 2
    depth: int = 12

    def __post_init__(self) -> None:
        assert set(self.what) <= set(WHAT), f"{self.what}: some of {WHAT}"
        assert self.cp_sizes, "no cp_size: nothing to sweep"
        assert min(*self.cp_sizes, self.ranks, self.depth, self.requests) >= 1, f"{self}: numbers from 1"


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Batches of `requests` requests.

    kind "lengths": every list of lengths, in every order, that begins with `begin`. "remainders": every multiset of
    remainders modulo 2 x cp_size that begins with `begin`, each with every sum of whole blocks modulo cp_size.
    """

    kind: str
    strategy: str
    cp_size: int
    requests: int
    length: int
    begin: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind} {self.strategy} cp {self.cp_size}, {self.requests} of {self.length}, {list(self.begin)}"


@dataclass(frozen=True, kw_only=True)
class Search:
    """The negotiation of `ranks` ranks in one domain (see domains.py), traces of up to `depth` passes."""

    domain: str
    ranks: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.domain}, {self.ranks} ranks, {self.depth} passes"


Part = Batches | Search


def batches(scope: Scope, contract: Contract) -> Iterator[Batches]:
    """The parts of the batches, those of few requests first. Raises InvalidInput for a scope beyond all machines."""
    most = min(scope.requests, contract.max_requests or scope.requests)
    for count, cp_size, strategy in product(range(1, most + 1), scope.cp_sizes, contract.strategies):
        length = scope.length or (4 if strategy == "zigzag" else 2) * cp_size - 1
        shape: dict[str, Any] = {"strategy": strategy, "cp_size": cp_size, "requests": count}
        values = lengths(length, cp_size, strategy, contract)
        known = begins([len(values) ** left for left in range(count, 0, -1)], shape)
        for begin in product(values, repeat=known):
            yield Batches(kind="lengths", length=length, begin=begin, **shape)
        if strategy == "zigzag" and not contract.divides:
            known = begins([representatives(cp_size, left) for left in range(count, 0, -1)], shape)
            for begin in combinations_with_replacement(range(2 * cp_size), known):
                yield Batches(kind="remainders", length=0, begin=begin, **shape)


def begins(left: Sequence[int], shape: dict[str, Any]) -> int:
    """Of how many requests a part says what they are, so that it has no more than `MOST` batches.

    left: batches that are left once those of none, one, two and so on are said; all of them first.
    """
    if left[0] > TOO_MANY:
        many = f"cp_size {shape['cp_size']} has {left[0]:,} batches of as many"
        refuse("requests", shape["requests"], f"{many}; the most are {TOO_MANY:,}: ask for fewer requests or tokens")
    return next((known for known, batches in enumerate(left) if batches <= MOST), len(left))


def lengths(longest: int, cp_size: int, strategy: str, contract: Contract) -> list[int]:
    """Tokens that a request can have for a batch of it alone to be sharded, so any batch of such requests is."""
    return [one for one in range(1, longest + 1) if shardable((one,), cp_size, strategy, **contract.sharding)]


def representatives(cp_size: int, requests: int) -> int:
    """Batches of `requests` requests that stand for all lengths: multisets of remainders, times sums of whole blocks.

    >>> sum(representatives(4, k) for k in range(1, 8))
    25736
    """
    return comb(2 * cp_size + requests - 1, requests) * cp_size


def parts(scope: Scope, contract: Contract, domains: Iterable[str]) -> list[Part]:
    """Searches come first: one of them takes longer than any part of the batches."""
    searches = [Search(domain=name, ranks=scope.ranks, depth=scope.depth) for name in domains]
    wanted: dict[str, Iterable[Part]] = {"negotiation": searches, "batches": batches(scope, contract)}
    return [part for what, own in wanted.items() if what in scope.what for part in own]
