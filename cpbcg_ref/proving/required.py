"""Theorems about an engine's required rows: its own function, executed on integers without a value."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import z3

from cpbcg_ref.proving.capacity import captured, lengths_of
from cpbcg_ref.proving.closed import rows_of
from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import number, paths, term

# Ranks and requests. Where code counts requests by their remainder, each remainder is a way of its own, hence FEW.
FEW = ((2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (8, 1))
MORE = ((2, 8), (3, 3), (4, 4), (8, 3), (16, 2))
Model = dict[str, int]


@dataclass(frozen=True)
class Asked:
    """A batch on some ranks, and the rows that the engine requires for it."""

    lengths: list[Any]
    cp_size: int
    answer: Any
    bucket: Any

    @property
    def unit(self) -> int:
        return 2 * self.cp_size if self.cp_size > 1 else 1

    @property
    def tokens(self) -> Any:
        return z3.Sum(*self.lengths)

    @property
    def owned(self) -> list[Any]:
        """The true rows of each rank."""
        return rows_of(self.lengths, self.cp_size)

    def aligned(self, rows: Any) -> Any:
        return (rows + self.unit - 1) / self.unit * self.unit

    def fits(self, least: Any) -> Any:
        """Whatever bucket of at least so many tokens was captured as one request has the rows."""
        return z3.Implies(self.bucket >= least, self.answer <= captured(self.bucket, self.cp_size))

    @property
    def slack(self) -> int:
        return 2 * (self.cp_size - 1) * ((len(self.lengths) - 1) // 2)


Claim = Callable[[Asked], Any]


def required(engine: Any, lengths: list[Any], cp_size: int) -> Any:
    return engine.required_local_tokens(lengths, cp_size=cp_size, strategy="zigzag", cp_rank=0)


@cache
def ways(engine: Any, cp_size: int, requests: int) -> list[tuple[tuple[Any, ...], Asked]]:
    """Per way through the code: its conditions, and what the engine answers."""
    lengths = [number(f"length_{i}") for i in range(requests)]
    terms, shardable = [*map(term, lengths)], [one.term >= 2 * cp_size for one in lengths]
    taken = paths(partial(required, engine, lengths, cp_size), *shardable)
    return [(tuple(given), Asked(terms, cp_size, term(rows), z3.Int("bucket"))) for given, rows in taken]


def on_every_way(engine: Any, claim: Claim, *groups: tuple[int, int]) -> Iterator[Obligation]:
    for cp_size, requests in groups:
        for given, asked in ways(engine, cp_size, requests):
            yield Obligation(given, claim(asked), f"{requests} requests on {cp_size} ranks")


def shows(engine: Any, claim: Claim, groups: Iterable[tuple[int, int]], model: Model) -> str:
    """What the engine answers where it breaks the claim. The requests may have been on any of these groups of ranks."""
    lengths = lengths_of(model)
    for cp_size in [cp_size for cp_size, requests in groups if requests == len(lengths)]:
        bucket, rows = model.get("bucket", 0), required(engine, lengths, cp_size)
        asked = Asked([*map(z3.IntVal, lengths)], cp_size, term(rows), z3.IntVal(bucket))
        if min(lengths) >= 2 * cp_size and z3.is_false(z3.simplify(claim(asked))):
            most = max(z3.simplify(one).as_long() for one in asked.owned)
            told = f"lengths {lengths} on {cp_size} ranks: {most} rows, {rows} required"
            has = required(engine, [bucket], cp_size) if bucket else 0
            return f"{told}, bucket {bucket} has {has}" if bucket else told
    return ""


def least_rows(asked: Asked) -> Any:
    """The least multiple of the alignment that holds every rank's rows."""
    least = z3.Or(*[asked.answer < rows + asked.unit for rows in asked.owned])
    return z3.And(asked.answer % asked.unit == 0, least, *[rows <= asked.answer for rows in asked.owned])


def bounded(asked: Asked, *, less: int = 0) -> Any:
    spread = -(-len(asked.lengths) // asked.cp_size)
    most = (asked.tokens + asked.cp_size - 1) / asked.cp_size + len(asked.lengths) - spread
    return asked.answer <= asked.aligned(most - less)


CLAIMS: dict[str, tuple[str, Claim, str, Claim]] = {
    "rows": (
        "The required rows are the least multiple of the alignment that holds the rows of every rank",
        least_rows,
        "Some rank owns as many rows as are required",
        lambda asked: z3.Or(*[asked.answer == rows for rows in asked.owned]),
    ),
    "bound": (
        "They are at most ceil(T/n) + k - ceil(k/n), aligned",
        bounded,
        "One row less is enough",
        partial(bounded, less=1),
    ),
    "slack": (
        "A captured bucket of at least T + 2(n-1) floor((k-1)/2) tokens has them",
        lambda asked: asked.fits(asked.tokens + asked.slack),
        "One token less is enough",
        lambda asked: asked.fits(asked.tokens + asked.slack - 1),
    ),
    "active": (
        "A captured bucket of at least 1.5 T tokens has them",
        lambda asked: asked.fits((3 * asked.tokens + 1) / 2),
        "A bucket of at least 1.05 T tokens has them",
        lambda asked: asked.fits((21 * asked.tokens + 19) / 20),
    ),
    "several": (
        "They are never fewer than those of one request of as many tokens",
        lambda asked: asked.answer >= captured(asked.tokens, asked.cp_size),
        "They are those of one request of as many tokens",
        lambda asked: asked.answer == captured(asked.tokens, asked.cp_size),
    ),
}
WRONG = ((2, 3),)


def theorem(engine: Any, plain: Any, name: str) -> Theorem:
    statement, claim, wrong, control = CLAIMS[name]
    groups = FEW if hasattr(engine, "library") else FEW + MORE
    scope = ", ".join(f"{requests} on {ranks}" for ranks, requests in groups)
    return Theorem(
        name=f"required-{name}",
        statement=f"{statement} (the engine's code; requests of any length that can be sharded and ranks: {scope}).",
        claim=partial(on_every_way, engine, claim, *groups),
        confirm=partial(shows, plain, claim, groups),
        wrong=f"{wrong} (3 requests, 2 ranks).",
        control=partial(on_every_way, engine, control, *WRONG),
        replay=partial(shows, plain, control, WRONG),
        needs="capacity",
    )


def theorems(engine: Any, plain: Any) -> tuple[Theorem, ...]:
    return tuple(theorem(engine, plain, name) for name in CLAIMS)
