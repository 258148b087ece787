"""Wrong captures: illegal synthetic requests, wrong rows, and lists that differ from what was captured."""

from dataclasses import replace
from typing import Any

from cpbcg_ref import answers, cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import STRATEGIES, Reference, ReferenceServer
from cpbcg_ref.faults.model import edit, fault

COUNT = "count = -(-bucket // context_length)"
SPLIT = "split = (base + 1,) * longer + (base,) * (count - longer)"
CUT = "split = (context_length,) * (count - 1) + (bucket - (count - 1) * context_length,)"
LEGAL = "return split if strategy_for(split, cp_size, strategy).can_shard(split, cp_size) else ()"
REFUSE = LEGAL + ' or refuse("bucket", bucket, "it cannot be captured")'
ROWS = "bucket: required_local_tokens(split, **how)"
SELECTABLE = "capture_num_tokens=tuple(requests)"

edit(
    "capture-one-long-request",
    "a bucket is captured as one request, longer than the context",
    ("capture", COUNT, "count = 1"),
    must="capture.legal",
    source="sglang#21112",
    smallest=1,
)
edit(
    "short-last-request",
    "a bucket is cut at the context length; a rest too short to shard stops the server",
    ("capture", SPLIT, CUT),
    ("capture", LEGAL, REFUSE),
    must="capture.legal",
    source="sglang: docs/findings.md, short last request",
    smallest=1,
)
edit(
    "short-rest-dropped",
    "a bucket is cut at the context length and dropped if the rest is too short, though an equal split is legal",
    ("capture", SPLIT, CUT),
    must="capture.legal",
    smallest=1,
)
edit(
    "uncapturable-bucket-crashes",
    "a bucket without a legal split stops the server instead of being dropped",
    ("capture", LEGAL, REFUSE),
    must="capture.legal",
    smallest=2,
)
edit(
    "unaligned-ladder",
    "a bucket that is no multiple of the shard width stops the server",
    ("capture", LEGAL, f"assert cp_size == 1 or bucket % (2 * cp_size) == 0\n    {LEGAL}"),
    must="capture.legal",
    source="sglang#33200",
    smallest=1,
)
edit(
    "long-buckets-dropped",
    "a bucket longer than the context is dropped instead of split",
    ("capture", LEGAL, "return split if count == 1 and " + LEGAL.removeprefix("return split if ")),
    must="capture.legal",
    smallest=1,
)
edit(
    "context-strict",
    "a request of exactly the context length is split once more: < for <=",
    ("capture", COUNT, "count = bucket // context_length + 1"),
    must="capture.legal",
    smallest=1,
)
edit(
    "requests-rounded-down",
    "the number of synthetic requests is rounded down: floor for ceil",
    ("capture", COUNT, "count = bucket // context_length or 1"),
    must="capture.legal",
    smallest=1,
)
edit(
    "capture-remainder-lost",
    "all synthetic requests have the floor of an equal share: they do not sum to the bucket",
    ("capture", SPLIT, "split = (base,) * count"),
    must="capture.legal",
    smallest=1,
)
edit(
    "capture-requests-too-short",
    "synthetic requests need half the tokens that sharding needs",
    ("capture", "can_shard(split, cp_size) else", "can_shard(split, max(1, cp_size // 2)) else"),
    must="capture.legal",
    smallest=1,
)
edit(
    "rows-by-tokens",
    "the rows recorded for a bucket are those of one request of as many tokens",
    ("capture", ROWS, "bucket: required_local_tokens((bucket,), **how)"),
    must="capture.legal",
    smallest=1,
)
edit(
    "rows-of-one-request",
    "the rows recorded for a bucket are those of its first synthetic request",
    ("capture", ROWS, "bucket: required_local_tokens(split[:1], **how)"),
    must="capture.legal",
    smallest=1,
)
edit(
    "captured-rows-unaligned",
    "the rows recorded for a bucket are not rounded up to the alignment",
    ("capture", ROWS, "bucket: required_local_tokens(split, **how | {'alignment': 1})"),
    must="capture.legal",
    smallest=1,
)
edit(
    "last-bucket-lost",
    "the largest captured bucket cannot be selected: off by one",
    ("capture", SELECTABLE, "capture_num_tokens=tuple(requests)[:-1]"),
    must="capture.legal",
    smallest=1,
)
edit(
    "ladder-not-captured",
    "the selector matches against the asked ladder, captured or not",
    ("capture", SELECTABLE, "capture_num_tokens=tuple(self.ladder)"),
    ("replay", "rows.get(buckets[i], -1)", "rows.get(buckets[i], required)"),
    must="select.captured capture.legal",
    source="tokenspeed#936",
    smallest=1,
)


@fault("ladder-not-rounded", must="capture.legal", smallest=1, source="sglang#36262")
class LadderNotRounded(Reference):
    """Buckets are declared to be multiples of the shard width and captured as asked."""

    contract = Contract(strategies=STRATEGIES, graph_strategies=STRATEGIES, min_replay_bucket=True, ladder=1)


class WithoutLargest(ReferenceServer):
    """Odd ranks had no memory left for the largest bucket."""

    def __init__(self, server: cases.Server, library: Any) -> None:
        super().__init__(server, library)
        ladder = server.capture_num_tokens
        self.even, self.odd = self.table, self.table
        if len(ladder) > 1:
            self.odd = ReferenceServer(replace(server, capture_num_tokens=ladder[:-1]), library).table

    def captured(self, cp_rank: int) -> answers.Captured:
        self.table = self.odd if cp_rank % 2 else self.even
        return super().captured(cp_rank)

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        self.table = self.odd if cp_rank % 2 else self.even
        return super().select(batch, cp_rank)


@fault("local-ladder", must="capture.legal agree.bucket", smallest=2)
class LocalLadder(Reference):
    """Each rank captures what fits in its own memory, and selects among that."""

    server = WithoutLargest


class UnknownRows(ReferenceServer):
    def captured(self, cp_rank: int) -> answers.Captured:
        captured = super().captured(cp_rank)
        return replace(captured, bucket_local_tokens=captured.bucket_local_tokens[:-1])


@fault("unknown-rows", must="replay.safe-fallback capture.legal", smallest=3)
class RowsNotRecorded(Reference):
    """The rows of the largest bucket are not recorded, and it is chosen all the same."""

    server = UnknownRows
