"""All ranks in one process, in step: each runs to its next collective, then all get the result."""

from collections.abc import Sequence
from typing import Any

import torch

from gpu_conformance.model import AllGather, Doing


def lockstep(ranks: Sequence[Any]) -> list[Any]:
    """What each rank's generator returns. Raises AssertionError if ranks part ways at a collective."""
    sent: list[Any] = [None] * len(ranks)
    while True:
        asked, done = [], []
        for rank, value in zip(ranks, sent, strict=True):
            try:
                asked.append(next_collective(rank, value))
            except StopIteration as ended:
                done.append(ended.value)
        if not asked:
            return done
        assert not done, "some ranks have finished while others wait in a collective"
        sent = [all_gather(asked)] * len(ranks)


def next_collective(rank: Any, value: Any) -> AllGather:
    while isinstance(asked := rank.send(value), Doing):
        value = None
    return asked


def all_gather(asked: Sequence[AllGather]) -> torch.Tensor:
    kinds = {(one.what, tuple(one.rows.shape)) for one in asked}
    assert len(kinds) == 1, f"ranks meet in different collectives: {kinds}"
    return torch.cat([one.rows for one in asked])
