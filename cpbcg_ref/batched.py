"""The required rows of many batches in one call, for a scheduler that weighs several or a sweep: needs NumPy.

`cpbcg_ref.layout` says what the rows are; here are the same numbers for arrays, and the same checks. Batches are given
as kernels take them: the lengths of all, one after the other, and where each batch begins.

    lengths  [1534, 161, 353, 9, 9, 9]    offsets  [0, 3, 6]    two batches of three requests
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cpbcg_ref
from cpbcg_ref.errors import refuse

Numbers = NDArray[np.int64]
AT_ONCE = 2**15  # requests
MOST = 2**62  # tokens of all batches together, so that no sum leaves int64


def required_local_tokens(
    lengths: NDArray[Any],
    offsets: NDArray[Any],
    *,
    cp_size: int,
    strategy: str = "zigzag",
    alignment: int | None = None,
) -> Numbers:
    """Physical rows of each batch; batch i has the extend lengths `lengths[offsets[i] : offsets[i + 1]]`.

    An empty batch has 0 rows: it runs eager, as it has no tokens. Raises InvalidInput for anything but arrays of
    integers, a negative length, and offsets that do not ascend from 0 to the number of lengths.

    >>> batches = np.array([1534, 161, 353, 9, 9, 9]), np.array([0, 3, 6])
    >>> required_local_tokens(*batches, cp_size=4).tolist()
    [520, 16]
    """
    unit = cpbcg_ref.required_local_tokens([1], cp_size=cp_size, strategy=strategy, alignment=alignment)
    assert unit, "one token has one unit of rows"
    lengths, offsets = checked_lengths(lengths), checked_offsets(offsets, requests=len(lengths))
    tokens = totals(lengths, offsets)
    if strategy != "zigzag":
        return -(-tokens // (cp_size * unit)) * unit
    most = [zigzag(lengths, offsets[begin : end + 1], tokens[begin:end], cp_size) for begin, end in parts(offsets)]
    return -(-np.concatenate(most or [tokens]) // unit) * unit


def parts(offsets: Numbers) -> Iterator[tuple[int, int]]:
    """Runs of batches that have about `AT_ONCE` requests together: what they need in between stays in the cache."""
    ends = np.searchsorted(offsets, np.arange(AT_ONCE, offsets[-1], AT_ONCE)).tolist()
    return pairwise(sorted({0, *ends, len(offsets) - 1}))


def totals(lengths: Numbers, offsets: Numbers) -> Numbers:
    """Tokens of each batch. `reduceat` sums up to the next place it is given, so it is given none of an empty batch."""
    tokens, starts = np.zeros(len(offsets) - 1, dtype=np.int64), offsets[:-1]
    filled = starts < offsets[1:]
    tokens[filled] = np.add.reduceat(lengths, starts[filled])
    return tokens


def zigzag(lengths: Numbers, offsets: Numbers, tokens: Numbers, n: int) -> Numbers:
    """Rows of the largest rank, see `layout.Zigzag.spread`. offsets: of these batches among all lengths."""
    batches, blocks, lengths = len(tokens), 2 * n, lengths[offsets[0] : offsets[-1]]
    batch = np.repeat(np.arange(batches), np.diff(offsets))
    count = np.bincount(lengths % blocks * batches + batch, minlength=blocks * batches).reshape(blocks, batches)
    beyond, total, most = np.zeros((3, batches), dtype=np.int64)
    for rank in range(1, n):
        beyond += count[-rank] - count[rank]
        total += beyond
        np.maximum(most, beyond, out=most)
    return (tokens - total) // n + most


def check_array(name: str, values: Any) -> None:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iu":
        refuse(name, values, "pass a NumPy array of one axis and an integer type")


def checked_lengths(values: Any) -> Numbers:
    check_array("lengths", values)
    if len(values) and values.min() < 0:
        i = int(np.argmax(values < 0))
        refuse(f"lengths[{i}]", int(values[i]), "a length is an integer >= 0 (tokens)")
    if len(values) and int(values.max()) * len(values) > MOST:
        refuse("the longest of lengths", int(values.max()), f"all batches together have at most {MOST} tokens")
    return values.astype(np.int64, copy=False)  # type: ignore[no-any-return]


def checked_offsets(values: Any, *, requests: int) -> Numbers:
    check_array("offsets", values)
    ends = values[[0, -1]].tolist() if len(values) else []
    if ends != [0, requests] or (values[1:] < values[:-1]).any():
        refuse("offsets", values.tolist(), f"they ascend from 0 to the number of lengths, {requests}")
    return values.astype(np.int64, copy=False)  # type: ignore[no-any-return]
