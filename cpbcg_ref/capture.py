"""What is captured before serving, and so what the selector may choose from: section 2 of the specification."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cpbcg_ref.errors import check, check_ladder, refuse
from cpbcg_ref.layout import required_local_tokens, strategy_for


@dataclass(frozen=True, kw_only=True)
class CaptureTable:
    """One server's captured graphs, equal on all ranks; the padding rule too, so that nobody selects by another.

    `ladder`: buckets asked for (tokens of a batch). `cp_size` 1: CP not configured. `context_length`: longest request
    (tokens). `supports`: what the graphs can do beyond a plain prefill. The rest is what could be captured of it.

    >>> table = CaptureTable(ladder=(4, 16, 128), cp_size=4, context_length=64)
    >>> table.capture_num_tokens, table.requests[128], dict(table.bucket_local_tokens)
    ((16, 128), (64, 64), {16: 8, 128: 32})
    """

    ladder: tuple[int, ...]
    cp_size: int
    context_length: int
    strategy: str = "zigzag"
    alignment: int | None = None
    max_padding_factor: float = 2
    min_replay_bucket: int = 0
    supports: frozenset[str] = frozenset()
    capture_num_tokens: tuple[int, ...] = field(init=False, compare=False, repr=False)
    requests: Mapping[int, tuple[int, ...]] = field(init=False, compare=False, repr=False)
    bucket_local_tokens: Mapping[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_ladder("ladder", self.ladder, self.max_padding_factor, self.min_replay_bucket)
        limits = {"context_length": self.context_length, **self.group}
        requests = {bucket: split for bucket in self.ladder if (split := capture_requests(bucket, **limits))}
        if not requests:
            refuse("ladder", self.ladder, f"no bucket can be captured with {limits}; add larger buckets")
        how = {"alignment": self.alignment, **self.group}
        rows = {bucket: required_local_tokens(split, **how) for bucket, split in requests.items()}
        vars(self).update(ladder=tuple(self.ladder), capture_num_tokens=tuple(requests))
        vars(self).update(requests=MappingProxyType(requests), bucket_local_tokens=MappingProxyType(rows))

    @property
    def group(self) -> dict[str, Any]:
        """What the functions of the layout ask for."""
        return {"cp_size": self.cp_size, "strategy": self.strategy}


def capture_requests(bucket: int, *, cp_size: int, context_length: int, strategy: str = "zigzag") -> tuple[int, ...]:
    """Synthetic extend lengths that sum to `bucket`: as few as the context allows, as equal as possible, longer first.

    Empty if they cannot be sharded: no other split could, for more requests are shorter still.

    >>> capture_requests(27, cp_size=4, context_length=9), capture_requests(9, cp_size=4, context_length=8)
    ((9, 9, 9), ())
    """
    check(int, least=1, what="a bucket (tokens)", bucket=bucket)
    check(int, least=1, what="the longest request (tokens)", context_length=context_length)
    count = -(-bucket // context_length)
    base, longer = divmod(bucket, count)
    split = (base + 1,) * longer + (base,) * (count - longer)
    return split if strategy_for(split, cp_size, strategy).can_shard(split, cp_size) else ()
