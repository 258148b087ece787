"""Rows of many batches at once, by who owns which token: tokens are dealt one by one, and batches add up requests.

Zigzag cuts each request on its own, so what a rank has of a batch is what it has of each request. Interleave deals the
batch as one run of tokens.
"""

from typing import Any

import numpy as np

from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.oracles.tokens import live_rows


def loads(batches: Any, *, cp_size: int, strategy: str, blocks: str = "balanced") -> Any:
    """Rows that every rank owns: (batches, cp_size) for lengths of (batches, requests).

    >>> loads(np.array([[5, 4], [9, 9]]), cp_size=2, strategy="zigzag").tolist()
    [[5, 4], [10, 8]]
    """
    asked = batches if strategy == "zigzag" else batches.sum(axis=1, keepdims=True)
    found = np.unique(asked)
    dealt = np.array([live_rows((int(length),), cp_size, strategy, blocks) for length in found], dtype=np.int64)
    return dealt[np.searchsorted(found, asked)].sum(axis=1)


def required(owned: Any, *, cp_size: int, strategy: str, contract: Contract) -> list[int]:
    """Aligned rows per batch: the fullest rank's, rounded up to the engine's unit."""
    most = owned.max(axis=1)
    units = {rows: contract.aligned(rows, cp_size=cp_size, strategy=strategy) for rows in np.unique(most).tolist()}
    return [units[rows] for rows in most.tolist()]
