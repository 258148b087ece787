"""The rules for input that the core shares. Each check returns nothing or raises `InvalidInput`; none repairs."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, NoReturn

from cpbcg_ref.errors import InvalidInput


def refuse(name: str, value: Any, rule: str) -> NoReturn:
    raise InvalidInput(f"{name} is {value!r}: {rule}")


def check_number(
    name: str, value: Any, *, least: int = 0, what: str = "it", kinds: tuple[type, ...] = (int, float)
) -> None:
    """Never NaN or infinite, and not a bool, which is nearly always a swapped argument."""
    if type(value) not in kinds or not least <= value < inf:
        refuse(name, value, f"{what} is {'an integer' if kinds == (int,) else 'a finite number'} >= {least}")


def check_whole(name: str, value: Any, *, least: int, what: str = "it") -> None:
    check_number(name, value, least=least, what=what, kinds=(int,))


def check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        check_whole(name, value, least=0)


def check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if type(value) is not bool:
            refuse(name, value, "pass True or False")


def check_tokens(
    values: Sequence[int], *, name: str = "lengths", what: str = "a length", requests: int | None = None
) -> None:
    """Tokens per request. The quick test passes good input; the loop finds the culprit."""
    if type(values) not in (list, tuple):
        refuse(name, values, "pass a list or tuple with one number of tokens per request")
    if requests is not None and len(values) != requests:
        refuse(name, values, f"pass one for each of {requests} requests; 0 for none")
    if values and (set(map(type, values)) != {int} or min(values) < 0):
        for i, value in enumerate(values):
            if type(value) is not int or value < 0:
                refuse(f"{name}[{i}]", value, f"{what} is an integer >= 0 (tokens)")


def check_group(cp_size: Any, alignment: Any) -> None:
    check_whole("cp_size", cp_size, least=1, what="the number of CP ranks (1: no CP)")
    if alignment is not None:
        check_whole("alignment", alignment, least=1, what="the unit of physical rows")


def check_rows(rows: Any, *, most: int) -> None:
    check_whole("rows", rows, least=most, what=f"the number of physical rows, where a rank owns {most},")


def check_ladder(name: str, ladder: Sequence[int]) -> None:
    if type(ladder) not in (list, tuple) or not ladder or set(map(type, ladder)) != {int} or ladder[0] < 1:
        refuse(name, ladder, "pass a list or tuple of buckets, at least one, each an integer >= 1 (tokens)")
    if any(low >= high for low, high in pairwise(ladder)):
        refuse(name, ladder, "buckets ascend and none comes twice; sort them and drop duplicates")


def check_padding_rule(max_padding_factor: Any, min_replay_bucket: Any) -> None:
    check_number("max_padding_factor", max_padding_factor, least=1, what="the largest bucket over its batch")
    check_whole("min_replay_bucket", min_replay_bucket, least=0, what="the floor of the padding rule (0: none)")


def check_fingerprints(gathered: Sequence[int], *, ours: int, rows: int) -> None:
    if len(gathered) != rows:
        refuse("rows in the table", len(gathered), f"gather {rows}: dp_size, or 1 without DP attention")
    for rank, theirs in enumerate(gathered):
        if theirs != ours:
            refuse(f"fingerprint {rank}", theirs, f"here it is {ours}; configure all ranks alike")
