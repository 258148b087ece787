"""Wrong required rows, and batches that are sharded although they cannot be."""

from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults.layout import LONG_ENOUGH, PerRank
from cpbcg_ref.faults.model import edit, fault

Lengths = list[int] | None


@fault("min-for-max", must="capacity.required", smallest=6)
class MinForMax(Reference):
    """Required rows are those of the smallest rank."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        rows = self.library.per_rank_logical_tokens(lengths, **group) if lengths else ()
        return self.contract.aligned(min(rows), **group) if rows else None


@fault("rows-averaged", must="capacity.required", smallest=18)
class RowsAveraged(Reference):
    """Required rows are those of one request with as many tokens: remainders of several requests are forgotten."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        return self.library.required_local_tokens(lengths and [sum(lengths)], **group)


@fault("alignment-forgotten", must="capacity.required", smallest=3)
class AlignmentForgotten(Reference):
    """Required rows are not rounded up to the alignment."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        return self.library.required_local_tokens(lengths, alignment=1, **group)


@fault("alignment-rounded-down", must="capacity.required", smallest=3)
class AlignmentRoundedDown(Reference):
    """Required rows are rounded down to the alignment: floor for ceil."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        rows, unit = (
            self.library.required_local_tokens(lengths, alignment=1, **group),
            self.contract.aligned(1, **group),
        )
        return None if rows is None else rows // unit * unit


@fault("alignment-per-request", must="capacity.required", smallest=4)
class AlignmentPerRequest(Reference):
    """The rows of each request are aligned before they are added."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        return sum(self.library.required_local_tokens([length], **group) for length in lengths) if lengths else None


@fault("own-rows-required", must="capacity.required", smallest=6)
class OwnRowsRequired(Reference):
    """Each rank requires its own rows instead of the largest rank's."""

    def required_local_tokens(self, lengths: Lengths, *, cp_rank: int, **group: Any) -> int | None:
        own = lengths and self.library.per_rank_logical_tokens(lengths, **group)[cp_rank]
        return self.contract.aligned(own, **group) if own else None


# Batches that cannot be sharded.
edit(
    "active-by-total",
    "CP is active when the batch has enough tokens in all, however short one request is",
    ("layout", LONG_ENOUGH, "return sum(lengths) >= 2 * n"),
    must="layout.bad-input select.without-cp",
    smallest=6,
)
edit(
    "active-by-longest",
    "CP is active when the longest request is long enough: max for min",
    ("layout", LONG_ENOUGH, "return max(lengths, default=0) >= 2 * n"),
    must="layout.bad-input select.without-cp",
    smallest=6,
)
edit(
    "active-from-cp-size",
    "CP is active from cp_size tokens on instead of twice as many",
    ("layout", LONG_ENOUGH, "return min(lengths, default=0) >= n"),
    must="layout.bad-input select.without-cp",
    smallest=3,
)
edit(
    "strictly-longer",
    "a request of exactly two tokens per rank is refused: > for >=",
    ("layout", LONG_ENOUGH, "return min(lengths, default=0) > 2 * n"),
    must="layout.bijection capture.legal",
    smallest=5,
)
edit(
    "interleave-always-active",
    "interleave is active for any token, though ranks may be left without",
    ("layout", "return sum(lengths) >= n", "return sum(lengths) > 0"),
    must="layout.bad-input select.without-cp",
    smallest=2,
)
edit(
    "negative-length",
    "a negative length is added up like any other",
    ("errors", "is int and value >= 0:", "is int:"),
    must="layout.bad-input",
    source="sglang: docs/findings.md, negative length",
    smallest=6,
)


class AnyLength(Reference):
    """Declares that it can shard any request."""

    contract = Contract(min_length=0)


edit(
    "empty-rank",
    "CP stays active when a prefix hit leaves fewer tokens than ranks",
    ("layout", LONG_ENOUGH, "return min(lengths, default=0) > 0"),
    over=AnyLength,
    must="layout.nonempty",
    source="sglang#19656",
    smallest=2,
)
edit(
    "short-sequence-raises",
    "the engine says that it pads a sequence shorter than the alignment, and cannot shard it",
    ("layout", LONG_ENOUGH, "return min(lengths, default=0) > 1"),
    over=AnyLength,
    must="layout.bijection",
    source="verl#5981",
    smallest=2,
)


@fault("short-sequence", must="layout.bad-input", smallest=2, source="SkyRL#1407")
class ShortSequence(Reference):
    """A sequence shorter than the alignment is read by padded offsets: its last token stands in several rows."""

    def shard(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        short = min(batch.lengths, default=0)
        if not 0 < short < 2 * group["cp_size"]:
            return super().shard(batch, payload, **group)
        padded = cases.Batch(lengths=(2 * group["cp_size"] * -(-batch.num_tokens // short),), prefixes=(0,))
        past_the_end = payload[-1:] * (padded.num_tokens - len(payload))
        return super().shard(padded, payload + past_the_end, **group)

    shard_positions = shard
