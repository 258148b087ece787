"""What a batch is to the ranks: which tokens stand in which rows, and where their keys and values are cached.

Every rank makes the same plan from the same lengths. Slot 0 of the cache is the scratch slot: padding writes there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from cpbcg_ref import local_tokens

Tensor = torch.Tensor
SCRATCH = 0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request: token ids of the whole sequence, how many of them are cached, the cache slot of each."""

    tokens: tuple[int, ...]
    prefix: int
    slots: tuple[int, ...]

    def __post_init__(self) -> None:
        assert 0 <= self.prefix < len(self.tokens) == len(self.slots), f"{self}: every token has a slot, one is new"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """rows: per rank the tokens (numbers in the batch) that it owns, in local order."""

    sequences: tuple[Request, ...]
    rows: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    request: tuple[int, ...]  # of each token

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(len(one.tokens) - one.prefix for one in self.sequences)

    @property
    def last_tokens(self) -> list[int]:
        return [end - 1 for end in accumulate(self.lengths)]


def plan(sequences: Sequence[Request], cp_size: int) -> Plan:
    lengths = [len(one.tokens) - one.prefix for one in sequences]
    new = [(number, one, i) for number, one in enumerate(sequences) for i in range(one.prefix, len(one.tokens))]
    return Plan(
        sequences=tuple(sequences),
        rows=local_tokens(lengths, cp_size=cp_size),
        tokens=tuple(one.tokens[i] for _, one, i in new),
        positions=tuple(i for _, _, i in new),
        slots=tuple(one.slots[i] for _, one, i in new),
        request=tuple(number for number, _, _ in new),
    )
