"""What is captured before serving, and so what the selector may choose from: section 2 of the specification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cpbcg_ref.checks import check_ladder, check_number, check_whole, refuse
from cpbcg_ref.layout import required_local_tokens, strategy_named


@dataclass(frozen=True, kw_only=True)
class CaptureTable:
    """One server's captured graphs, equal on all ranks.

    Given: the `ladder` of buckets (tokens of a batch), `cp_size` (1: CP not configured), `context_length` (longest
    request, tokens), what the graphs support beyond a plain prefill, and the selector's padding rule, kept here so that
    admission and replay cannot use two. Derived: the buckets that can be captured, their requests and physical rows.

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
    requests: Mapping[int, tuple[int, ...]] = field(init=False, compare=False, repr=False)
    bucket_local_tokens: Mapping[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_ladder("ladder", self.ladder)
        check_padding_rule(self.max_padding_factor, self.min_replay_bucket)
        requests = {bucket: split for bucket in self.ladder if (split := self._split(bucket))}
        if not requests:
            rule = f"no bucket can be captured with requests of at most {self.context_length} tokens"
            refuse("ladder", self.ladder, f"{rule} by {self.strategy} on {self.cp_size} ranks; add larger buckets")
        object.__setattr__(self, "requests", MappingProxyType(requests))
        rows = {bucket: self.required_local_tokens(split) for bucket, split in requests.items()}
        object.__setattr__(self, "bucket_local_tokens", MappingProxyType(rows))

    @property
    def capture_num_tokens(self) -> tuple[int, ...]:
        return tuple(self.requests)

    def required_local_tokens(self, lengths: Sequence[int] | None) -> int | None:
        """Physical rows of a batch on this server."""
        return required_local_tokens(lengths, cp_size=self.cp_size, strategy=self.strategy, alignment=self.alignment)

    def _split(self, bucket: int) -> tuple[int, ...]:
        return capture_requests(
            bucket, cp_size=self.cp_size, context_length=self.context_length, strategy=self.strategy
        )


def capture_requests(bucket: int, *, cp_size: int, context_length: int, strategy: str = "zigzag") -> tuple[int, ...]:
    """Synthetic extend lengths that sum to `bucket`: as few as the context allows, as equal as possible, longer first.

    Empty if they cannot be sharded: no other split could, for more requests are shorter still.

    >>> capture_requests(27, cp_size=4, context_length=9), capture_requests(9, cp_size=4, context_length=8)
    ((9, 9, 9), ())
    """
    check_whole("bucket", bucket, least=1, what="a bucket (tokens)")
    check_whole("context_length", context_length, least=1, what="the longest request (tokens)")
    count = -(-bucket // context_length)
    base, longer = divmod(bucket, count)
    split = (base + 1,) * longer + (base,) * (count - longer)
    return split if strategy_named(strategy, cp_size=cp_size).can_shard(split) else ()


def check_padding_rule(max_padding_factor: float, min_replay_bucket: int) -> None:
    check_number("max_padding_factor", max_padding_factor, least=1, what="the largest bucket over its batch")
    check_whole("min_replay_bucket", min_replay_bucket, least=0, what="the floor of the padding rule (0: none)")
