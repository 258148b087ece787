"""Input checks that the core shares. Each returns nothing, or raises `InvalidInput` with name, value and rule."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, NoReturn

from cpbcg_ref.errors import InvalidInput


def refuse(name: str, value: Any, rule: str) -> NoReturn:
    raise InvalidInput(f"{name} is {value!r}: {rule}")


def check_whole(name: str, value: Any, *, least: int, what: str) -> None:
    """A plain int and not a bool, which is nearly always a swapped argument."""
    if type(value) is not int or value < least:
        refuse(name, value, f"{what} is an integer >= {least}")


def check_number(name: str, value: Any, *, least: int = 0, what: str) -> None:
    if type(value) not in (int, float) or not isfinite(value) or value < least:
        refuse(name, value, f"{what} is a finite number >= {least}")


def check_flag(name: str, value: Any) -> None:
    if type(value) is not bool:
        refuse(name, value, "pass True or False")


def check_tokens(values: Sequence[int], *, name: str = "lengths", what: str = "a length") -> None:
    """Tokens per request. The quick test passes good input; the loop finds the culprit."""
    if type(values) not in (list, tuple):
        refuse(name, values, "pass a list or tuple with one number of tokens per request")
    if values and (set(map(type, values)) != {int} or min(values) < 0):
        for i, value in enumerate(values):
            if type(value) is not int or value < 0:
                refuse(f"{name}[{i}]", value, f"{what} is an integer >= 0 (tokens)")


def check_ladder(name: str, ladder: Sequence[int]) -> None:
    if type(ladder) not in (list, tuple) or not ladder or set(map(type, ladder)) != {int} or ladder[0] < 1:
        refuse(name, ladder, "pass a list or tuple of buckets, at least one, each an integer >= 1 (tokens)")
    if any(low >= high for low, high in pairwise(ladder)):
        refuse(name, ladder, "buckets ascend and none comes twice; sort them and drop duplicates")
