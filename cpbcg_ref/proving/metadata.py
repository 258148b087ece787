"""The theorem about how SGLang cuts and spreads a batch: its own `build_metadata`, executed on lengths without a value.

Only the tensors that it makes of its lists at the end stay lists.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import z3

from cpbcg_ref.proving.capacity import lengths_of
from cpbcg_ref.proving.closed import rows_of
from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import number, paths, term

GROUPS = ((2, 1), (2, 2), (3, 1), (4, 1), (8, 1))  # ranks and requests: each remainder is a way of its own


class Lists:
    """`torch`, except that a tensor of numbers without a value is their list."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def tensor(self, values: Any, **options: Any) -> Any:
        return values


def can_be_asked(engine: Any) -> bool:
    """Is it a release whose strategies make such metadata?"""
    process: Any = getattr(engine, "process", None)
    return hasattr(process, "enter") and hasattr(process.enter(2, "zigzag", 0), "build_metadata")


def metadata(engine: Any, lengths: list[Any], cp_size: int) -> Any:
    """What rank 0 learns of the batch."""
    return engine.process.enter(cp_size, "zigzag", 0).build_metadata(sum(lengths), list(lengths), list(lengths))


def without_tensors(engine: Any, lengths: list[Any], cp_size: int) -> Any:
    strategy = type(engine.process.enter(cp_size, "zigzag", 0))
    module = vars(engine.process.tree.load(strategy.__module__))
    torch = module["torch"]
    module["torch"] = Lists(torch)
    try:
        return metadata(engine, lengths, cp_size)
    finally:
        module["torch"] = torch


def blocks(made: Any, requests: int) -> list[list[Any]]:
    """Of each request, in order."""
    sizes = [*map(term, made.split_list)]
    count = len(sizes) // requests
    return [sizes[at : at + count] for at in range(0, len(sizes), count)]


def well_spread(made: Any, lengths: list[Any], cp_size: int) -> Any:
    """Blocks sum to their request and differ by at most 1, ranks have what the definition gives them, and what they
    hand in (early blocks of all requests, then late ones) is put back in order."""
    cut, last = blocks(made, len(lengths)), 2 * cp_size - 1
    claims = [z3.Sum(*own) == length for own, length in zip(cut, lengths, strict=True)]
    claims += [z3.And(own[-1] >= 0, own[-1] <= size, size <= own[-1] + 1) for own in cut for size in own]
    rows = [*map(term, made.per_rank_actual_token)]
    claims += [mine == right for mine, right in zip(rows, rows_of(lengths, cp_size), strict=True)]
    owned = [block for rank in range(cp_size) for block in (rank, last - rank)]
    handed_in = [(request, block) for block in owned for request in range(len(lengths))]
    sizes = [cut[request][block] for request, block in handed_in]
    claims += [term(told) == size for told, size in zip(made.reverse_split_len, sizes, strict=True)]
    put_back = [handed_in[at] for at in made.cp_reverse_index]
    return z3.And(*claims, z3.BoolVal(put_back == sorted(handed_in)))


def equal_blocks(made: Any, lengths: list[Any], cp_size: int) -> Any:
    return z3.And(*[size == own[0] for own in blocks(made, len(lengths)) for size in own])


def on_every_way(engine: Any, claim: Any, *groups: tuple[int, int]) -> Iterator[Obligation]:
    for cp_size, requests in groups:
        lengths = [number(f"length_{i}") for i in range(requests)]
        terms = [*map(term, lengths)]
        shardable = [length >= 2 * cp_size for length in terms]
        for given, made in paths(partial(without_tensors, engine, lengths, cp_size), *shardable):
            yield Obligation(tuple(given), claim(made, terms, cp_size), f"{requests} requests on {cp_size} ranks")


def shows(engine: Any, claim: Any, model: dict[str, int]) -> str:
    """What the release makes of these lengths, on one of the groups of ranks, where that breaks the claim."""
    lengths = lengths_of(model)
    for cp_size in [ranks for ranks, requests in GROUPS if requests == len(lengths) and min(lengths) >= 2 * ranks]:
        made = metadata(engine, lengths, cp_size)
        if z3.is_false(z3.simplify(claim(made, [*map(z3.IntVal, lengths)], cp_size))):
            return f"lengths {lengths} on {cp_size} ranks: blocks of {made.split_list}"
    return ""


def theorems(engine: Any, plain: Any) -> tuple[Theorem, ...]:
    scope = ", ".join(f"{requests} on {ranks}" for ranks, requests in GROUPS)
    return (
        Theorem(
            name="metadata",
            statement="The blocks of each request sum to it and differ by at most 1, every rank has the rows that the "
            "definition gives it, and the index that restores gathered blocks puts them back in order (build_metadata "
            f"of the release; requests of any length that can be sharded and ranks: {scope}).",
            claim=partial(on_every_way, engine, well_spread, *GROUPS),
            confirm=partial(shows, plain, well_spread),
            wrong="All blocks of a request are equally long (1 request, 2 ranks).",
            control=partial(on_every_way, engine, equal_blocks, (2, 1)),
            replay=partial(shows, plain, equal_blocks),
            needs="layout",
        ),
    )
