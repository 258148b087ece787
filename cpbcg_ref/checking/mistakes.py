"""Mistakes of adapters that can be told from what a method answers, each in words that say what to change."""

from collections.abc import Sequence
from typing import Any

from cpbcg_ref.checking.calls import FIRST

MAY_BE_NONE = ("required_local_tokens", "select_replay_bucket", "select")
KINDS = {int: "an int", bool: "True or False", list: "a list", tuple: "a tuple"}
SAY = "hand back the values of `payload` that stand there"
Ranks = Sequence[Sequence[int]]


def unlike(method: str, value: Any, golden: Any) -> str | None:
    """What is wrong with the types of an answer; how many rows or segments a rank has is the engine's business."""
    if value is None and method.rpartition(".")[2] in MAY_BE_NONE:
        return None
    if isinstance(golden, list) and isinstance(value, (list, tuple)):  # an answer for every rank
        if value and isinstance(golden[0], list) and all(type(entry) is int for entry in value):
            return f"{method} answers one list of numbers: answer a list per rank, of all {len(golden)} ranks at once"
        if len(value) != len(golden):
            return f"{method} answers for {len(value)} of {len(golden)} ranks: answer for all of them at once, in order"
    return unfit(value, golden, f"{method} answers")


def unfit(value: Any, golden: Any, who: str, place: str = "") -> str | None:
    """The first part of a value that is of another type than its part of `golden`; lists and tuples are alike."""
    where = f" in {place}" if place else ""
    if isinstance(golden, (list, tuple)) and isinstance(value, (list, tuple)):
        if isinstance(golden, tuple) and len(value) != len(golden):
            return f"{who} {value!r}{where}: it must have {len(golden)} entries"
        wanted = golden if isinstance(golden, tuple) else [golden[0]] * len(value)
        parts = enumerate(zip(value, wanted, strict=True))
        return next(filter(None, (unfit(*pair, who, f"{place}[{at}]") for at, pair in parts)), None)
    if type(value) is type(golden):
        return None
    kind = KINDS.get(type(golden), f"a cpbcg_ref.answers.{type(golden).__name__}")
    return f"{who} {named(value)}{where}: it must be {kind}{advice(value, golden, nested=bool(place))}"


def named(value: Any) -> str:
    """What a wrong value is, with the value if that is short."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    short = repr(value) if isinstance(value, str) else str(value)
    text = "" if hasattr(value, "__next__") or len(short) > 40 else f" ({short})"
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}{text}"


def advice(value: Any, golden: Any, *, nested: bool) -> str:
    if value is None:
        return (
            ", in padding too, see padding_value in the contract"
            if nested
            else "; does the method return what it makes?"
        )
    if hasattr(value, "tolist"):
        return ", .tolist() makes it one"
    if isinstance(value, (list, tuple)):
        return "" if nested else ", for one rank or one batch at a time"
    return ", list(...) makes it one" if hasattr(value, "__next__") else ""


def misplaced(rows: Ranks, golden: Ranks, *, lengths: Sequence[int], payload: Sequence[int], pad: int) -> str | None:
    """What a sharded payload shows. golden: the tokens that each rank may own."""
    local = [[value for value in own if value != pad] for own in rows]
    values = [value for own in local for value in own]
    foreign = sorted(set(values) - set(payload))
    if len(foreign) == 1 and set(payload) <= set(values):
        declare = f"declare Contract(padding_value={foreign[0]}), it is {pad}"
        return f"{foreign[0]} is no token of the payload: if it is padding, {declare}"
    if foreign:
        told = (made_up(made, lengths) for made in (rows, local))  # a 0 may be padding, or the first number
        return next(filter(None, told), f"{foreign[0]} is no token of the payload: {SAY}")
    return moved_wrongly(local, values, lengths, payload, golden)


def made_up(rows: Ranks, lengths: Sequence[int]) -> str | None:
    """Where numbers that are not the payload's come from."""
    values = sorted(value for own in rows for value in own)
    if renumbered("shard", rows):
        return f"these are row numbers that start again on each rank: {SAY}"
    if len(lengths) > 1 and values == sorted(at for length in lengths for at in range(length)):
        return f"these are positions that start again in each request: {SAY}"
    if values in (counting(values, 0), counting(values, 1)) and len(values) == sum(lengths):
        return f"these are numbers of tokens: {SAY}"
    return None


def renumbered(method: str, rows: Ranks) -> str | None:
    if len(rows) > 1 and all(list(own) in (counting(own, 0), counting(own, 1)) for own in rows):
        return f"{method} gives row numbers that start again on each rank: let it move what it is handed"
    return None


def counting(values: Sequence[int], first: int) -> list[int]:
    return list(range(first, first + len(values)))


def moved_wrongly(
    local: Ranks, values: list[int], lengths: Sequence[int], payload: Sequence[int], golden: Ranks
) -> str | None:
    """Of values of the payload: only what no engine does by itself."""
    owned, due = [set(own) for own in local], [set(own) for own in golden]
    if len(owned) > 1 and owned[0] and all(own == owned[0] for own in owned):
        return "every rank answers alike: tell the engine which rank it is before each of them is asked"
    if len(lengths) > 1 and sorted(values) == sorted(payload[at] for length in lengths for at in range(length)):
        return (
            "the first request stands in the rows of every request: numbers inside a request are local, add the tokens "
            "of the requests before it"
        )
    swapped = [due.index(own) for own in owned if own in due]
    if sorted(swapped) == list(range(len(owned))) != swapped:
        rank = next(rank for rank, other in enumerate(swapped) if rank != other)
        whose = f"rank {rank} holds the tokens of rank {swapped[rank]}"
        return f"the ranks are swapped, {whose}: answer in the order of the ranks"
    return None


def turned_round(rows: Ranks, segments: Sequence[Sequence[tuple[int, int]]], *, pad: int) -> str | None:
    """Of one request without prefix: do the rows stand in the order of the segments once their halves are swapped."""
    local = [[value - FIRST for value in own if value != pad] for own in rows]
    halves = [own[len(own) // 2 :] + own[: len(own) // 2] for own in local]
    ranks = range(len(local))
    if all(fits(halves[rank], segments[rank]) and not fits(local[rank], segments[rank]) for rank in ranks):
        return (
            "shard gives the late block first and kv_segments the early one, or the other way round: both must list "
            "the same rows in the same order"
        )
    return None


def fits(positions: Sequence[int], segments: Sequence[tuple[int, int]]) -> bool:
    """Does the last row of each segment see as many keys as its position says."""
    ends, end = [], 0
    for rows, keys in segments:
        end += rows
        ends.append((end - 1, keys - 1))
    return end == len(positions) and all(positions[at] == position for at, position in ends)
