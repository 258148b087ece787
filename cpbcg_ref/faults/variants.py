"""Right engines that differ from the reference in layout, capture, selection or replay: none may be flagged."""

from dataclasses import replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import STRATEGIES, Reference, ReferenceServer
from cpbcg_ref.faults.capture import LEGAL, SPLIT
from cpbcg_ref.faults.edited import Edit, edited
from cpbcg_ref.faults.layout import EDGE, LONG_ENOUGH, PAIRS, PIECES, ROUND_ROBIN
from cpbcg_ref.faults.model import variant

PLAIN = Contract(strategies=STRATEGIES, graph_strategies=STRATEGIES, min_replay_bucket=True)


def core(name: str, *edits: Edit) -> Any:
    return edited(f"cpbcg_{name}", edits)


@variant("wider-alignment")
class WiderAlignment(Reference):
    """Rows are padded to a multiple of four tokens per rank, and that is declared."""

    contract = replace(PLAIN, alignment={"zigzag": 4, "interleave": 1})
    library = core("wider_alignment", ("layout", "multiple = 2  #", "multiple = 4  #"))


@variant("longer-requests")
class LongerRequests(Reference):
    """Zigzag needs four tokens per rank, and that is declared; shorter requests run without CP."""

    contract = replace(PLAIN, min_length=4)
    library = core("longer_requests", ("layout", LONG_ENOUGH, "return min(lengths, default=0) >= 4 * n"))


@variant("ceil-chunks")
class CeilChunks(Reference):
    """Blocks are ceil(L / 2n) tokens long and the last ones short, and that is declared."""

    contract = replace(PLAIN, blocks="ceil", strategies=("zigzag",), graph_strategies=("zigzag",))
    library = core(
        "ceil_chunks",
        ("layout", EDGE, "start + min(block * -(-length // (2 * n)), length) for"),
        (
            "layout",
            "        blocks = 2 * n\n",
            "        return 0, [sum(map(len, own)) for own in self.pieces(lengths, n)]\n",
        ),
    )


@variant("padding-of-minus-one")
class PaddingOfMinusOne(Reference):
    """Padding rows hold -1 instead of 0, and that is declared."""

    contract = replace(PLAIN, padding_value=-1)


@variant("request-major-rows")
class RequestMajorRows(Reference):
    """A rank's rows stand request by request, and keys, positions and gather follow: any order of rows will do."""

    library = core(
        "request_major_rows",
        ("layout", PIECES, PIECES.replace("for block in pair for at in edges", "for at in edges for block in pair")),
    )


@variant("late-block-first")
class LateBlockFirst(Reference):
    """A rank's late block stands before its early one, and everything follows."""

    library = core(
        "late_block_first", ("layout", PAIRS, PAIRS.replace("(rank, 2 * n - 1 - rank)", "(2 * n - 1 - rank, rank)"))
    )


@variant("zigzag-graphs-only")
class ZigzagGraphsOnly(Reference):
    """Graphs are declared for zigzag alone: what it is not sure to run on a graph runs eager."""

    contract = replace(PLAIN, graph_strategies=("zigzag",))

    class server(ReferenceServer):
        def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
            return self.select(batch, cp_rank) is not None

        def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
            without_cp = self.server.cp_size == 1
            return super().select(batch, cp_rank) if without_cp or self.server.strategy == "zigzag" else None


@variant("tokens-known-is-enough")
class TokensKnownIsEnough(Reference):
    """With CP off the token rule needs no lengths: a batch of unknown lengths is replayed."""

    class server(ReferenceServer):
        def _asked(self, batch: cases.Batch) -> dict[str, Any]:
            lengths = batch.lengths if self.server.cp_size == 1 else None
            return super()._asked(batch) | ({"lengths": lengths} if lengths else {})


@variant("more-capture-requests")
class MoreCaptureRequests(Reference):
    """A bucket is captured as one request more than needed where that is legal: any legal split will do."""

    library = core(
        "more_capture_requests",
        (
            "capture",
            LEGAL,
            "count, layout = count + 1, strategy_for(split, cp_size, strategy)\n"
            "    more = tuple(bucket // count + (i < bucket % count) for i in range(count))\n"
            "    return more if min(more) and layout.can_shard(more, cp_size) else "
            "split if layout.can_shard(split, cp_size) else ()",
        ),
    )


@variant("ladder-rounded-up")
class LadderRoundedUp(Reference):
    """Buckets are rounded up to a multiple of two tokens per rank, and that is declared."""

    contract = replace(PLAIN, ladder=2)

    class server(ReferenceServer):
        def __init__(self, server: cases.Server, library: Any) -> None:
            unit = 2 * server.cp_size
            rounded = tuple(sorted({-(-bucket // unit) * unit for bucket in server.capture_num_tokens}))
            super().__init__(replace(server, capture_num_tokens=rounded), library)


@variant("lengths-that-divide")
class LengthsThatDivide(Reference):
    """Zigzag shards multiples of two tokens per rank only, and that is declared; others run without CP."""

    contract = replace(PLAIN, divides=2, strategies=("zigzag",), graph_strategies=("zigzag",))
    library = core(
        "lengths_that_divide",
        ("layout", LONG_ENOUGH, f"{LONG_ENOUGH} and not any(length % (2 * n) for length in lengths)"),
        (
            "capture",
            "base, longer = divmod(bucket, count)\n",
            "step = 2 * cp_size if cp_size > 1 else 1\n"
            "    count = -(-bucket // (context_length // step * step)) if context_length >= step else 1\n"
            "    base, longer = divmod(bucket // step, count)\n"
            "    if bucket % step or context_length < step:\n        return ()\n",
        ),
        (
            "capture",
            SPLIT,
            "split = ((base + 1) * step,) * longer + (base * step,) * (count - longer)",
        ),
    )


@variant("contiguous-interleave")
class ContiguousInterleave(Reference):
    """Interleave gives each rank a contiguous share of the batch: only zigzag promises balanced work."""

    library = core(
        "contiguous_interleave",
        (
            "layout",
            ROUND_ROBIN,
            "range(token, token + 1) for token in range(sum(self.loads(lengths, n)[:rank]), "
            "sum(self.loads(lengths, n)[: rank + 1]))] for",
        ),
    )


@variant("remainder-in-late-blocks")
class RemainderInLateBlocks(Reference):
    """The last blocks take one token of the remainder each, so every rank owns as many rows as before."""

    library = core(
        "remainder_in_late_blocks", ("layout", EDGE, "start + block * base + max(0, block - 2 * n + remainder) for")
    )
