"""Everything a caller of cpbcg_ref can catch, and the rules for input: a check returns nothing or raises."""

from itertools import pairwise
from sys import float_info
from typing import Any, NoReturn, get_args


class CpbcgError(Exception):
    """Base of all errors raised on purpose. Its text says what was wrong, the value, the rule, and what to do."""


class InvalidInput(CpbcgError, ValueError):
    """A value breaks a rule: "lengths[1] is -1: a length is an integer >= 0 (tokens)". Nothing is repaired."""


class ReplayError(CpbcgError, RuntimeError):
    """A batch reached replay although no captured graph can run it. Admission and replay disagree: a bug above."""


class TargetError(CpbcgError):
    """A target cannot be obtained: unknown name, failing download, wrong checksum, missing folder or symbol."""


def refuse(name: str, value: Any, rule: str) -> NoReturn:
    raise InvalidInput(f"{name} is {value!r}: {rule}")


def check(kind: Any, *, least: int = 0, what: str = "it", **values: Any) -> None:
    """`kind`: bool, int or float (an int will do), or with `| None`. A bool is no number: mostly a swapped argument."""
    kinds = get_args(kind) or (kind,)
    for name, value in values.items():
        fits = type(value) in kinds or (float in kinds and type(value) is int)
        if not fits or not (value is None or least <= value <= float_info.max):
            rules = {bool: "True or False", int: f"an integer >= {least}", float: f"a finite number >= {least}"}
            refuse(name, value, f"{what} is {rules[kinds[0]]}")


def check_tokens(values: Any, *, name: str = "lengths", what: str = "a length", requests: int | None = None) -> None:
    """Tokens per request: a list or tuple of integers >= 0, where `requests` is given one for each."""
    if type(values) is not list and type(values) is not tuple:
        refuse(name, values, "pass a list or tuple with one number of tokens per request")
    if requests is not None and len(values) != requests:
        refuse(name, values, f"pass one for each of {requests} requests; 0 for none")
    for value in values:
        if type(value) is int and value >= 0:
            continue
        i = next(i for i, culprit in enumerate(values) if culprit is value)
        refuse(f"{name}[{i}]", value, f"{what} is an integer >= 0 (tokens)")


def check_ladder(name: str, ladder: Any, max_padding_factor: Any, min_replay_bucket: Any) -> None:
    """Buckets to choose from, and the padding rule by which one is chosen."""
    if type(ladder) not in (list, tuple) or not ladder or set(map(type, ladder)) != {int} or ladder[0] < 1:
        refuse(name, ladder, "pass a list or tuple of buckets, at least one, each an integer >= 1 (tokens)")
    if any(low >= high for low, high in pairwise(ladder)):
        refuse(name, ladder, "buckets ascend and none comes twice; sort them and drop duplicates")
    check(float, least=1, what="the largest bucket over its batch", max_padding_factor=max_padding_factor)
    check(int, what="the floor of the padding rule (0: none)", min_replay_bucket=min_replay_bucket)
