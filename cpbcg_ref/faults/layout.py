"""Wrong layouts: tokens without an owner or with two, keys that a row does not see, companions moved by another map."""

from itertools import accumulate, chain
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults.model import edit, fault

PerRank = list[list[int]]
EDGE = "start + block * base + min(block, remainder) for"
PAIRS = "owned = [(rank, 2 * n - 1 - rank) for rank in range(n)]"
PIECES = "return [[range(at[block], at[block + 1]) for block in pair for at in edges] for pair in owned]"
LONG_ENOUGH = "return min(lengths, default=0) >= 2 * n"
ROUND_ROBIN = "range(token, token + 1) for token in range(rank, sum(lengths), n)] for"

# Owners of tokens.
edit(
    "rank-of-another-group",
    "the rank is that of another process group: two ranks take the same shard",
    ("layout", PAIRS, PAIRS.replace("rank, 2", "rank // 2, 2").replace("1 - rank", "1 - rank // 2")),
    must="layout.bijection",
    source="sglang#33865",
    smallest=5,
)
edit(
    "tail-dropped",
    "tokens beyond a whole number per block are given to nobody",
    ("layout", EDGE, "start + block * base for"),
    must="layout.bijection layout.conserves",
    source="TransformerEngine:pad_thd_sequences_for_cp",
    smallest=6,
)
edit(
    "remainder-in-the-last-block",
    "the last block takes the whole remainder instead of the early blocks one token each",
    ("layout", EDGE, "start + block * base + (remainder if block == 2 * n else 0) for"),
    must="layout.balance layout.conserves",
    smallest=7,
)
edit(
    "undeclared-ceil-chunks",
    "blocks are ceil(L / 2n) tokens long and the last ones short, while rows are counted as balanced",
    ("layout", EDGE, "start + min(block * -(-length // (2 * n)), length) for"),
    must="layout.balance layout.conserves",
    smallest=6,
)
edit(
    "late-not-mirrored",
    "rank r owns block n + r instead of block 2n - 1 - r, so the last rank does the most work",
    ("layout", PAIRS, "owned = [(rank, n + rank) for rank in range(n)]"),
    must="layout.balance",
    smallest=5,
)
edit(
    "contiguous-chunks",
    "each rank takes one chunk of ceil(L / n) tokens, so the last ranks may get none",
    (
        "layout",
        f"{EDGE} block in range(2 * n + 1)",
        "start + min(block * -(-length // n), length) for block in range(n + 1)",
    ),
    ("layout", PAIRS, "owned = [(rank,) for rank in range(n)]"),
    (
        "layout",
        "rows = required_local_tokens(lengths, cp_size=cp_size, strategy=strategy) or 0",
        "rows = max(map(len, owned))",
    ),
    must="layout.nonempty layout.balance",
    source="pytorch:_context_parallel_shard",
    smallest=10,
)
edit(
    "document-major",
    "documents are balanced one after the other, then cut in contiguous shards: a rank gets whole documents",
    (
        "layout",
        PIECES,
        "order = iter([t for at in edges for pair in owned for b in pair for t in range(at[b], at[b + 1])])\n"
        "        return [[range(t, t + 1) for _, t in zip(range(many), order)] for many in self.loads(lengths, n)]",
    ),
    must="layout.balance",
    source="pytorch#189902",
    smallest=10,
)
edit(
    "interleave-restarts",
    "round robin starts again at rank 0 with each request, while rows are counted for the whole batch",
    (
        "layout",
        ROUND_ROBIN,
        "range(token, token + 1) for at, length in zip(accumulate(lengths, initial=0), lengths)\n"
        "                 for token in range(at + rank, at + length, n)] for",
    ),
    must="layout.conserves capacity.required",
    smallest=4,
)
edit(
    "padding-repeats-a-row",
    "padding repeats the rank's last token instead of the declared padding value",
    ("layout", "(pad,) * (rows - len(tokens))", "(values[tokens[-1]],) * (rows - len(tokens))"),
    must="layout.bijection",
    smallest=3,
)
edit(
    "padding-first",
    "padding is put before the live rows, while gather expects it behind them",
    (
        "layout",
        "tuple(values[token] for token in tokens) + (pad,) * (rows - len(tokens))",
        "(pad,) * (rows - len(tokens)) + tuple(values[token] for token in tokens)",
    ),
    must="layout.roundtrip layout.causal",
    smallest=3,
)
edit(
    "gathered-in-rank-order",
    "gathered rows stay rank-major, the blocks are not put back in request order",
    ("layout", "tuple(live[token] for token in range(sum(lengths)))", "tuple(live.values())"),
    must="layout.roundtrip",
    smallest=4,
)


@fault("captured-capacity-forgotten", must="layout.roundtrip", smallest=3)
class CapturedCapacityForgotten(Reference):
    """Gather cuts the flat buffer by the rows that this batch requires, not by those that the graph captured."""

    def gather(self, batch: cases.Batch, rows: PerRank, **group: Any) -> PerRank:
        most = max(self.logical_rows(batch, **{name: group[name] for name in ("cp_size", "strategy")}))
        flat = list(chain(*rows))
        return super().gather(batch, [flat[rank * most : (rank + 1) * most] for rank in range(len(rows))], **group)


@fault("padding-counted", must="layout.conserves", smallest=3)
class PaddingCounted(Reference):
    """The number of rows that a rank owns includes its padding."""

    def logical_rows(self, batch: cases.Batch, **group: Any) -> list[int]:
        return [self.library.required_local_tokens(batch.lengths, **group)] * group["cp_size"]


@fault("even-share-counted", must="layout.conserves", smallest=4)
class EvenShareCounted(Reference):
    """The number of rows that a rank owns is T // n on every rank: floor for the real share."""

    def logical_rows(self, batch: cases.Batch, **group: Any) -> list[int]:
        return [batch.num_tokens // group["cp_size"]] * group["cp_size"]


# Keys.
KEYS = "keys = [prefix + i + 1 for"
edit(
    "causal-off-by-one",
    "a row does not see its own key",
    ("layout", KEYS, "keys = [prefix + i for"),
    must="layout.causal",
    smallest=3,
)
edit(
    "prefix-not-seen",
    "cached tokens are no keys: only the extend tokens are counted",
    ("layout", KEYS, "keys = [i + 1 for"),
    must="layout.causal",
    smallest=4,
)
edit(
    "prefix-of-the-first-request",
    "every request is given the cached prefix of the first one",
    ("layout", KEYS, "keys = [prefixes[0] + i + 1 for"),
    must="layout.causal",
    smallest=5,
)
edit(
    "keys-in-request-order",
    "rows stand early blocks first, their key counts request by request",
    ("layout", "if piece) for own in pieces)", "if piece) for own in (sorted(own, key=min) for own in pieces))"),
    must="layout.causal",
    smallest=10,
)


@fault("kv-order", must="layout.causal", smallest=3, source="sglang#29161")
class KvOrder(Reference):
    """The queries are permuted, their key counts are still those of a contiguous shard."""

    def kv_segments(self, batch: cases.Batch, **group: Any) -> list[list[tuple[int, int]]]:
        sizes = [[rows for rows, _ in own] for own in super().kv_segments(batch, **group)]
        return [list(zip(rows, accumulate(rows), strict=True)) for rows in sizes]


@fault("early-and-late-swapped", must="layout.causal", smallest=4)
class EarlyAndLateSwapped(Reference):
    """The early half of a rank's rows is given the key counts of the late half."""

    def kv_segments(self, batch: cases.Batch, **group: Any) -> list[list[tuple[int, int]]]:
        return [own[len(own) // 2 :] + own[: len(own) // 2] for own in super().kv_segments(batch, **group)]


@fault("offsets-sliced-as-tokens", must="layout.causal", smallest=4, source="Megatron-LM:get_batch_on_this_cp_rank")
class OffsetsSlicedAsTokens(Reference):
    """The per-request array of prefixes is cut over the ranks like tokens: a rank knows those of its slice only."""

    def kv_segments(self, batch: cases.Batch, **group: Any) -> list[list[tuple[int, int]]]:
        def own(rank: int) -> list[tuple[int, int]]:
            known = tuple(prefix if i % n == rank else 0 for i, prefix in enumerate(batch.prefixes))
            seen = cases.Batch(lengths=batch.lengths, prefixes=known)
            return super(OffsetsSlicedAsTokens, self).kv_segments(seen, **group)[rank]

        n = group["cp_size"]
        return [own(rank) for rank in range(n)]


# Companions: what must move by the same map as the hidden states.
@fault("local-positions", must="layout.companions", smallest=3, source="sglang#32098")
class LocalPositions(Reference):
    """Rows carry their place on the rank instead of their global position."""

    def shard_positions(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        return [list(range(len(rows))) for rows in self.shard(batch, payload, **group)]


@fault("residual-layout", must="layout.companions", smallest=3, source="sglang#21170")
class ResidualLayout(Reference):
    """The hidden states are sharded, what stands beside them is not."""

    def shard_positions(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        return [payload] * group["cp_size"]


@fault("state-of-wrong-request", must="layout.companions", smallest=4, source="sglang#31833")
class StateOfWrongRequest(Reference):
    """The batch is flattened and numbered as if it were one request."""

    def shard_positions(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        return self.shard(batch, list(range(payload[0], payload[0] + len(payload))), **group)


@fault("filtered-one-of-two", must="layout.companions", smallest=5, source="sglang#18280")
class FilteredOneOfTwo(Reference):
    """A rank keeps the numbers of the requests that it owns tokens of, but the prefixes of all: they no longer pair."""

    def shard_positions(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        requests = [request for request, length in enumerate(batch.lengths) for _ in range(length)]
        owner = [0, *(1 + request for request in requests)]  # by payload value, 0 is padding
        where = [[owner[value] for value in rows] for rows in self.shard(batch, list(range(1, len(owner))), **group)]
        wrong = []
        for rank, moved in enumerate(self.shard(batch, payload, **group)):
            kept = sorted(set(where[rank]) - {0})
            paired = dict(zip(kept, batch.prefixes, strict=False))
            rows = zip(moved, where[rank], strict=True)
            wrong.append([at - batch.prefixes[one - 1] + paired[one] if one else at for at, one in rows])
        return wrong


@fault("cumulative-lengths-sliced", must="layout.companions", smallest=3, source="Megatron-Bridge#1964")
class CumulativeLengthsSliced(Reference):
    """Cumulative lengths that stand in a batch are cut into blocks as its tokens are."""

    def shard_lengths(
        self, batch: cases.Batch, payload: list[int], cumulative: list[int], *, cp_size: int, strategy: str
    ) -> PerRank:
        block = len(cumulative) // (2 * cp_size)
        cut = [cumulative[at : at + block] for at in range(0, len(cumulative), block)]
        return [cut[rank] + cut[-1 - rank] for rank in range(cp_size)]


@fault("prefix-twice", must="layout.companions", smallest=4)
class PrefixTwice(Reference):
    """Positions count the cached prefix twice."""

    def shard_positions(self, batch: cases.Batch, payload: list[int], **group: Any) -> PerRank:
        prefixes = [prefix for prefix, length in zip(batch.prefixes, batch.lengths, strict=True) for _ in range(length)]
        return self.shard(batch, [at + more for at, more in zip(payload, prefixes, strict=True)], **group)
