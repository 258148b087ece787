"""The theorem about an engine's required rows: its own function, executed on integers without a value."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import z3

from cpbcg_ref.proving.closed import rows_of
from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import number, paths, term

GROUPS = ((2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (8, 1))  # ranks and requests: each remainder is a way of its own


def required(engine: Any, lengths: list[Any], cp_size: int) -> Any:
    return engine.required_local_tokens(lengths, cp_size=cp_size, strategy="zigzag", cp_rank=0)


def ways(engine: Any, *groups: tuple[int, int]) -> Iterator[tuple[tuple[Any, ...], Any, list[Any], int]]:
    """Per way through the code: its conditions, the required rows, the true rows of each rank, the ranks."""
    for cp_size, requests in groups:
        lengths = [number(f"length_{i}") for i in range(requests)]
        shardable, owned = [one.term >= 2 * cp_size for one in lengths], rows_of([*map(term, lengths)], cp_size)
        for given, answer in paths(partial(required, engine, lengths, cp_size), *shardable):
            yield tuple(given), term(answer), owned, cp_size


def least(answer: Any, owned: list[Any], unit: int) -> Any:
    return z3.And(
        answer % unit == 0, z3.Or(*[answer < rows + unit for rows in owned]), *[rows <= answer for rows in owned]
    )


def least_rows(engine: Any) -> Iterable[Obligation]:
    for given, answer, owned, cp_size in ways(engine, *GROUPS):
        unit = engine.contract.aligned(1, cp_size=cp_size, strategy="zigzag")
        yield Obligation(given, least(answer, owned, unit), f"{cp_size} ranks")


def no_padding(engine: Any) -> Iterable[Obligation]:
    for given, answer, owned, _ in ways(engine, (2, 3)):
        yield Obligation(given, z3.Or(*[answer == rows for rows in owned]))


def given_lengths(model: dict[str, int]) -> list[int]:
    return [model[name] for name in sorted(model) if name.startswith("length_")]


def not_least(engine: Any, model: dict[str, int]) -> str:
    """The requests of a model may have been on any of these groups of ranks."""
    lengths = given_lengths(model)
    for cp_size in [cp_size for cp_size, requests in GROUPS if requests == len(lengths)]:
        owned, rows = rows_of([*map(z3.IntVal, lengths)], cp_size), required(engine, lengths, cp_size)
        unit = engine.contract.aligned(1, cp_size=cp_size, strategy="zigzag")
        if not z3.is_true(z3.simplify(least(term(rows), owned, unit))):
            most = max(z3.simplify(one).as_long() for one in owned)
            return f"lengths {lengths} on {cp_size} ranks: {most} rows, {rows} required"
    return ""


def padding(engine: Any, model: dict[str, int]) -> str:
    lengths = given_lengths(model)
    most = max(z3.simplify(rows).as_long() for rows in rows_of([*map(z3.IntVal, lengths)], 2))
    rows = required(engine, lengths, 2)
    return f"lengths {lengths} on 2 ranks: {most} rows, padded to {rows}" if rows > most else ""


def theorems(engine: Any) -> tuple[Theorem, ...]:
    groups = ", ".join(f"{requests} of any length on {ranks}" for ranks, requests in GROUPS)
    return (
        Theorem(
            name="required-rows",
            statement="The required rows are the least multiple of the alignment that holds the rows of every rank "
            f"(the engine's code; requests and ranks: {groups}).",
            claim=partial(least_rows, engine),
            confirm=partial(not_least, engine),
            wrong="Some rank owns as many rows as are required (3 requests, 2 ranks).",
            control=partial(no_padding, engine),
            replay=partial(padding, engine),
            needs="capacity",
        ),
    )
