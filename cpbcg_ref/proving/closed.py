"""Closed forms of the zigzag on any number of ranks, linear in every variable.

A request of L tokens on n ranks: L = 2n x base + remainder, 0 <= remainder < 2n; rank r has 2 x base + extra rows. What
multiplies two variables is a variable of its own here (`even` is n x base), so that z3 needs linear arithmetic only;
tests/test_proving_closed.py ties these forms to the code on all small cases.
"""

from dataclasses import dataclass
from typing import Any

import z3

n, k, rank, other = z3.Ints("cp_size requests rank other_rank")
RANKS = (n >= 1, rank >= 0, rank < n, other >= 0, other < n)


def extra(rank: Any, remainder: Any) -> Any:
    """0, 1 or 2: rank r has a token more in block r if the remainder reaches it, and in block 2n - 1 - r."""
    return z3.If(rank < remainder, 1, 0) + z3.If(2 * n - 1 - rank < remainder, 1, 0)


def times(count: Any, value: Any) -> Any:
    """count x value for a count of 0, 1 or 2."""
    return z3.If(count == 0, 0, z3.If(count == 1, value, 2 * value))


@dataclass(frozen=True)
class Request:
    """One request of any length. even: n x base. given: what is true of any."""

    base: Any
    even: Any
    remainder: Any

    @property
    def given(self) -> tuple[Any, ...]:
        whole = z3.If(self.base >= 1, self.even >= n, self.even == 0)
        return (self.base >= 0, self.even >= 0, whole, self.remainder >= 0, self.remainder < 2 * n)

    @property
    def length(self) -> Any:
        return 2 * self.even + self.remainder

    def rows_times_n(self, rank: Any) -> Any:
        return 2 * self.even + times(extra(rank, self.remainder), n)


def request(name: str = "") -> Request:
    return Request(*z3.Ints(f"base{name} n_base{name} remainder{name}"))


def multiple(count: Any, name: str) -> tuple[Any, Any]:
    """n x count as a variable, and what is true of it: it has the sign of `count`."""
    product = z3.Int(f"n_{name}")
    return product, z3.And(z3.Implies(count >= 0, product >= 0), z3.Implies(count <= 0, product <= 0))


def rows_of(lengths: list[Any], cp_size: int) -> list[Any]:
    """Rows of every rank by definition, for a number of ranks that is known."""
    blocks = 2 * cp_size
    pairs = [(rank, blocks - 1 - rank) for rank in range(cp_size)]
    block = [[length / blocks + z3.If(i < length % blocks, 1, 0) for length in lengths] for i in range(blocks)]
    return [z3.Sum(*block[early], *block[late]) for early, late in pairs]
