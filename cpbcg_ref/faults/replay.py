"""Wrong admission and replay, and ranks that do not agree: each a server with one answer changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cpbcg_ref import answers, cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import STRATEGIES, Reference, ReferenceServer, known
from cpbcg_ref.faults.model import fault


class Server(ReferenceServer):
    """Admission and replay both follow `select`; a fault changes that, or one of them."""

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        return self.select(batch, cp_rank) is not None

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        bucket = self.select(batch, cp_rank)
        if bucket is None:
            return super().load_batch(batch, cp_rank)
        return self.loaded(bucket, self.rows(batch)[cp_rank])

    def loaded(self, bucket: int, live: int) -> answers.Loaded:
        return answers.Loaded(bucket=bucket, captured_rows=self.table.bucket_local_tokens[bucket], live_rows=live)

    def rows(self, batch: cases.Batch) -> tuple[int, ...]:
        return self.library.per_rank_logical_tokens(batch.lengths, **self.table.group)

    def choose(self, tokens: int, rows: int) -> int | None:
        """The right selector, asked with these numbers."""
        table = self.table
        rule = {"max_padding_factor": table.max_padding_factor, "min_replay_bucket": table.min_replay_bucket}
        captured = {"capture_num_tokens": table.capture_num_tokens, "bucket_local_tokens": table.bucket_local_tokens}
        return self.library.select_replay_bucket(num_tokens=tokens, required_local_tokens=rows, **captured, **rule)

    def shards(self, batch: cases.Batch) -> bool:
        return self.library.is_cp_active(known(batch), **self.table.group)


def server(key: str, **named: Any) -> Callable[[type], type]:
    """Register the engine that starts this class of servers. named: as for `fault`."""

    def register(started: type) -> type:
        fault(key, **named)(type(started.__name__, (Reference,), {"__doc__": started.__doc__, "server": started}))
        return started

    return register


# Ranks that choose from what only they know.
@server("local-bucket", must="agree.bucket agree.collectives", smallest=4, source="sglang#37561")
class LocalBucket(Server):
    """Each rank picks the bucket from its own number of tokens, although the graph gathers from all."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        if not self.shards(batch):
            return super().select(batch, cp_rank)
        own = self.rows(batch)[cp_rank]
        return self.choose(own * self.server.cp_size, own)


@server("local-lookup", must="agree.bucket", smallest=18, source="vllm#25906")
class LocalLookup(Server):
    """The graph is looked up by the rank's own unpadded number of rows."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        return (
            self.choose(batch.num_tokens, self.rows(batch)[cp_rank])
            if self.shards(batch)
            else super().select(batch, cp_rank)
        )


@server("local-variant", must="agree.mode", smallest=4, source="sglang#35640")
class LocalVariant(Server):
    """The graph variant is picked from the longest prefix among a rank's own requests; one without has no variant."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        own = batch.prefixes[cp_rank :: self.server.cp_size]
        return super().select(batch, cp_rank) if not any(batch.prefixes) or any(own) else None


@server("local-space", must="agree.mode", smallest=4, source="sglang#31835")
class LocalSpace(Server):
    """Behind the shared decision each rank still checks its own space: one that owns the most rows runs eager."""

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        rows = self.rows(batch)
        return super().can_run_graph(batch, cp_rank) and not min(rows) < rows[cp_rank] == max(rows)


@server("own-composition", must="agree.mode", smallest=4, source="Megatron-LM#3033")
class OwnComposition(Server):
    """A graph must match a rank's own part of the batch: a rank with an odd number of rows finds none."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        return None if self.shards(batch) and self.rows(batch)[cp_rank] % 2 else super().select(batch, cp_rank)


@server("wrong-axis", must="agree.collectives", smallest=3, source="sglang#24560")
class WrongAxis(Server):
    """Odd ranks read the size of another process group, 1: they bring all rows to the gather."""

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        return replace(loaded, captured_rows=loaded.bucket) if cp_rank % 2 else loaded


@server("gather-of-own-rows", must="agree.collectives", smallest=4, source="sglang#20134")
class GatherOfOwnRows(Server):
    """Each rank brings its live rows to the gather instead of the captured ones: the buffer has another size."""

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        return replace(loaded, captured_rows=loaded.live_rows)


# Admission that answers other than replay.
@server("inactive-admitted", must="replay.admitted-implies-runs select.without-cp", smallest=2, source="sglang#38603")
class InactiveAdmitted(Server):
    """Admission asks the selector alone, so a batch too short to shard is admitted; replay cannot run it."""

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        rows = self.library.required_local_tokens(known(batch), **self.table.group)
        return rows is not None and self.choose(batch.num_tokens, rows) is not None


@server("inactive-fed", must="replay.admitted-implies-runs", smallest=2, source="sglang#38603")
class InactiveFed(Server):
    """Replay does not look again whether CP is active: unsharded rows reach the graph of a batch that was refused."""

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        bucket = None if self.shards(batch) else self.choose(batch.num_tokens, max(self.rows(batch)))
        return self.loaded(bucket, batch.num_tokens) if bucket else super().load_batch(batch, cp_rank)


@server("prompt-length-judged", must="replay.safe-fallback select.without-cp", smallest=3, source="sglang#19656")
class PromptLengthJudged(Server):
    """CP is switched on by the prompt length: a prefix hit leaves too few tokens to shard."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        whole = [sum(pair) for pair in zip(batch.lengths, batch.prefixes, strict=True)]
        if not batch.lengths_known or not self.library.is_cp_active(whole, **self.table.group):
            return super().select(batch, cp_rank)
        return self.choose(batch.num_tokens, self.library.required_local_tokens(batch.lengths, **self.table.group))


@server(
    "unknown-lengths-admitted",
    must="replay.safe-fallback",
    smallest=2,
    source="sglang: docs/findings.md, unknown lengths",
)
class UnknownLengthsAdmitted(Server):
    """Without extend lengths a batch is admitted by its number of tokens."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        return super().select(batch, cp_rank) if batch.lengths_known else self.choose(batch.num_tokens, 0)


@server(
    "unknown-lengths-raise", must="replay.safe-fallback", smallest=2, source="sglang: docs/findings.md, unknown lengths"
)
class UnknownLengthsRaise(Server):
    """Without extend lengths admission raises instead of answering eager."""

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        self.library.per_rank_logical_tokens(known(batch), **self.table.group)  # refuses None
        return super().can_run_graph(batch, cp_rank)


@server("bucket-by-tokens-replayed", must="replay.admitted-implies-runs", smallest=18)
class BucketByTokensReplayed(Server):
    """Replay selects by the tokens alone, though admission looked at the rows: two selectors."""

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        return self.loaded(self.choose(batch.num_tokens, 0) or loaded.bucket, loaded.live_rows or 0)


@server("largest-bucket-replayed", must="replay.admitted-implies-runs", smallest=2)
class LargestBucketReplayed(Server):
    """Admission decides whether there is a bucket, replay always takes the largest."""

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        return self.loaded(self.table.capture_num_tokens[-1], loaded.live_rows or 0)


# Rows that are lost between the two.
@server("rows-cut-off", must="capacity.no-overflow", smallest=18, source="sglang#33906")
class RowsCutOff(Server):
    """The bucket is picked by the tokens alone, and rows beyond the captured ones are cut off without a word."""

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        return self.choose(batch.num_tokens, 0) if self.shards(batch) else super().select(batch, cp_rank)

    def loaded(self, bucket: int, live: int) -> answers.Loaded:
        return super().loaded(bucket, min(live, self.table.bucket_local_tokens[bucket]))


@server("rows-of-largest-bucket", must="capacity.no-overflow", smallest=3)
class RowsOfLargestBucket(Server):
    """A bucket is replayed with the rows of the largest one."""

    def loaded(self, bucket: int, live: int) -> answers.Loaded:
        rows = self.table.bucket_local_tokens[self.table.capture_num_tokens[-1]]
        return replace(super().loaded(bucket, live), captured_rows=rows)


@server("last-row-lost", must="capacity.no-overflow", smallest=4)
class LastRowLost(Server):
    """A bucket whose rows are all live loses the last of them."""

    def loaded(self, bucket: int, live: int) -> answers.Loaded:
        return super().loaded(bucket, min(live, self.table.bucket_local_tokens[bucket] - 1))


# Servers that remember.
@server("stale-live-rows", must="capacity.no-overflow", smallest=7, source="sglang#35588")
class StaleLiveRows(Server):
    """The number of live rows is set by the first batch that is replayed on a bucket and never again."""

    def __init__(self, *started: Any) -> None:
        super().__init__(*started)
        self.first: dict[tuple[int, int], answers.Loaded] = {}

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        return self.first.setdefault((cp_rank, loaded.bucket), loaded)


@server("choice-by-tokens-remembered", must="capacity.no-overflow", smallest=34)
class ChoiceByTokensRemembered(Server):
    """The choice is remembered by the number of tokens, so another batch of as many tokens gets it too."""

    def __init__(self, *started: Any) -> None:
        super().__init__(*started)
        self.chosen: dict[int, int | None] = {}

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        if not self.shards(batch):
            return super().select(batch, cp_rank)
        return self.chosen.setdefault(batch.num_tokens, super().select(batch, cp_rank))


@server("bucket-kept", must="select.minimal", smallest=7)
class BucketKept(Server):
    """A bucket that still holds the next batch is kept, though a smaller one would do."""

    last: int | None = None

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        chosen = super().select(batch, cp_rank)
        keeps = chosen and self.last and chosen < self.last <= self.server.max_padding_factor * batch.num_tokens
        self.last = self.last if keeps else chosen
        return self.last


@server("bucket-of-the-batch-before", must="replay.admitted-implies-runs", smallest=5)
class BucketOfTheBatchBefore(Server):
    """Replay takes the bucket that was replayed before, whatever admission chose for this batch."""

    before: int = 0

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        loaded = super().load_batch(batch, cp_rank)
        last = cp_rank == self.server.cp_size - 1
        answer = self.loaded(self.before or loaded.bucket, loaded.live_rows or 0)
        self.before = loaded.bucket if last else self.before
        return answer


class ZigzagGraphs(Reference):
    """Declares graphs for zigzag alone."""

    contract = Contract(strategies=STRATEGIES, min_replay_bucket=True)


@fault("lost-side-effect", must="replay.safe-fallback", smallest=3, source="sglang#32606")
class LostSideEffect(ZigzagGraphs):
    """A graph is replayed for a batch that needs what the graph does not do: here the layout it has no graphs for."""
