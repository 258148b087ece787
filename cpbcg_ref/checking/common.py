"""What two engines can both be asked."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import lcm
from typing import Any

from cpbcg_ref.engines.contract import Contract, Dispatcher

NEEDED: dict[str, tuple[str, ...]] = {"layout": ("cp_sizes", "strategies"), "bad-layout": ("cp_sizes", "strategies")}
NEEDED |= {"replay": ("cp_sizes", "graph_strategies"), "capture": ("cp_sizes", "graph_strategies")}
NEEDED |= {"dispatch": ("dispatchers",)}
BOTH_HAVE = ("modes", "tokens_per_decode")
SHARDED = ("layout", "bad-layout", "capture")


def either(one: int, other: int) -> int:
    """The smaller of two limits, of which 0 is none."""
    return min(one, other) if one and other else one or other


def shared(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item for item in one if item in other)


def dispatchers(left: Mapping[str, Dispatcher], right: Mapping[str, Dispatcher]) -> dict[str, Dispatcher]:
    """The ways of setting up that both have, with what can be asked of either."""
    found = {}
    for name in shared(tuple(left), tuple(right)):
        one, other = left[name], right[name]
        told: dict[str, Any] = {field: shared(getattr(one, field), getattr(other, field)) for field in BOTH_HAVE}
        if all(told.values()) and one.even == other.even:
            multiples, choosable = one.multiples or other.multiples, one.choosable and other.choosable
            found[name] = replace(one, **told, multiples=multiples, choosable=choosable)
    return found


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "divides": lambda one, other: lcm(max(1, one), max(1, other)),
    "min_length": max,
    "max_requests": either,
    "dispatchers": dispatchers,
}


def common(left: Contract, right: Contract) -> Contract:
    """A contract of which every case is one that both engines can be asked.

    What no generator reads, such as where padding stands, is the left one's.

    >>> common(Contract(cp_sizes=(2, 4, 8)), Contract(cp_sizes=(1, 4, 2), min_length=1)).cp_sizes
    (2, 4)
    """
    told: dict[str, Any] = {}
    for field in fields(Contract):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if one == other:
            continue
        if field.name in RULES:
            told[field.name] = RULES[field.name](one, other)
        elif isinstance(one, tuple):
            told[field.name] = shared(one, other)
        elif isinstance(one, bool):
            told[field.name] = one and other
    return replace(left, **told)


def nothing_common(family: str, contract: Contract) -> str:
    """Why no case of this family can be put to both engines, "" if one can."""
    lacking = [name for name in NEEDED.get(family, ()) if not getattr(contract, name)]
    if lacking:
        return f"the two engines have no {lacking[0]} in common"
    if family in SHARDED and max(contract.cp_sizes) < 2:
        return "the two engines have no cp_sizes above 1 in common"
    return ""
