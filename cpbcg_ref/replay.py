"""Which captured bucket runs a batch, asked by admission and by replay alike: section 3 of the specification.

lengths unknown, or no request              eager
CP not configured (cp_size 1)               rows are tokens: the token rule alone
CP configured, batch too short to shard     eager, always
CP active                                   the bucket must hold the tokens and the largest rank's rows
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cpbcg_ref.capture import CaptureTable
from cpbcg_ref.errors import ReplayError, check, check_ladder, check_tokens, refuse
from cpbcg_ref.layout import STRATEGIES, Lengths, aligned_rows, per_rank_logical_tokens


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One batch on its graph: `captured_rows` on every rank, of which rank r fills `live_rows[r]`."""

    bucket: int
    captured_rows: int
    live_rows: tuple[int, ...]

    def __post_init__(self) -> None:
        assert max(self.live_rows) <= self.captured_rows, f"{self}: live rows overflow the captured ones"


def select_replay_bucket(
    *,
    num_tokens: int,
    required_local_tokens: int | None,
    capture_num_tokens: Sequence[int],
    bucket_local_tokens: Mapping[int, int],
    max_padding_factor: float = 2,
    min_replay_bucket: int = 0,
) -> int | None:
    """The smallest captured bucket that holds the tokens and the rows without too much padding; None: run eager.

    Too much is more than `max_padding_factor` x tokens, unless the bucket is at most `min_replay_bucket`. A bucket
    without an entry in `bucket_local_tokens` has unknown capacity and is never chosen.

    >>> rows = {"capture_num_tokens": [32, 48], "bucket_local_tokens": {32: 8, 48: 16}}
    >>> select_replay_bucket(num_tokens=27, required_local_tokens=16, **rows)
    48
    """
    rule = (max_padding_factor, min_replay_bucket)
    check(int, what="the tokens of the batch", num_tokens=num_tokens)
    check_ladder("capture_num_tokens", capture_num_tokens, *rule)
    check_tokens(list(bucket_local_tokens.values()), name="bucket_local_tokens", what="the rows of a bucket")
    check(int | None, what="the rows that every rank needs", required_local_tokens=required_local_tokens)
    if required_local_tokens is None:
        return None
    return smallest_bucket(num_tokens, required_local_tokens, capture_num_tokens, bucket_local_tokens, *rule)


def smallest_bucket(
    num_tokens: int, required: int, buckets: Sequence[int], rows: Mapping[int, int], factor: float, floor: int
) -> int | None:
    """The search itself, for what was checked, a table at its capture: bisection for the tokens, then past the buckets
    whose rows do not suffice, as rows need not grow with buckets."""
    most = factor * num_tokens
    i = bisect_left(buckets, num_tokens)
    while i < len(buckets) and (buckets[i] <= most or buckets[i] <= floor):
        if rows.get(buckets[i], -1) >= required:
            return buckets[i]
        i += 1
    return None


def select_replay_bucket_for_batch(lengths: Lengths | None, *, num_tokens: int, table: CaptureTable) -> int | None:
    """The bucket for a batch, None for eager. `lengths` None: unknown to the caller; `num_tokens` is their sum."""
    if lengths is None:
        check(int, what="the tokens of the batch", num_tokens=num_tokens)
        return None
    check_tokens(lengths)
    if type(num_tokens) is not int or num_tokens != sum(lengths):
        refuse("num_tokens", num_tokens, f"the lengths sum to {sum(lengths)}; pass both of the same batch")
    layout = STRATEGIES[table.strategy]
    if not lengths or (table.cp_size > 1 and not layout.can_shard(lengths, table.cp_size)):
        return None
    required = aligned_rows(lengths, table.cp_size, layout, table.alignment)
    rule = (table.max_padding_factor, table.min_replay_bucket)
    return smallest_bucket(num_tokens, required, table.capture_num_tokens, table.bucket_local_tokens, *rule)


def can_run_graph(lengths: Lengths | None, *, num_tokens: int, table: CaptureTable, asks: Collection[str] = ()) -> bool:
    """Admission: true exactly when `load_batch` will run the batch. `asks`: what it needs beyond a plain prefill."""
    bucket = select_replay_bucket_for_batch(lengths, num_tokens=num_tokens, table=table)
    return bucket is not None and table.supports.issuperset(asks)


def load_batch(lengths: Lengths | None, *, num_tokens: int, table: CaptureTable, asks: Collection[str] = ()) -> Replay:
    """Replay an admitted batch. Raises `ReplayError` instead of running it eager behind the caller's back.

    >>> table = CaptureTable(ladder=(32, 48), cp_size=4, context_length=64)
    >>> load_batch([9] * 4, num_tokens=36, table=table)
    Replay(bucket=48, captured_rows=16, live_rows=(12, 8, 8, 8))
    """
    bucket = select_replay_bucket_for_batch(lengths, num_tokens=num_tokens, table=table)
    if lengths is None or bucket is None or not table.supports.issuperset(asks):
        raise ReplayError(
            f"no graph of {dict(table.bucket_local_tokens)} runs the batch of {num_tokens} tokens, lengths {lengths} "
            f"on {table.cp_size} ranks, asking for {list(asks)}; run eager what can_run_graph refuses"
        )
    live = per_rank_logical_tokens(lengths, **table.group)
    return Replay(bucket=bucket, captured_rows=table.bucket_local_tokens[bucket], live_rows=live)
