"""capacity.*: the rows that a batch needs, and whether the graph that admission picks has them."""

from typing import Any

from cpbcg_ref.answers import LayoutSeen, Loaded
from cpbcg_ref.cases import LayoutCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import Turn, every_turn, invariant, layout_check, padded, part, some_turn
from cpbcg_ref.invariants.layout import live
from cpbcg_ref.oracles.buckets import fitting
from cpbcg_ref.oracles.tokens import live_rows


@layout_check(required="required rows", rows="sharding")
def required(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Required rows >= rows really produced by sharding on every rank, and equal to the padded maximum.

    Against the rows that this engine's own sharding made. None says that the batch runs eager, which is right for a
    strategy without graphs.
    """
    most = max(len(live(rows)) for rows in seen.rows)
    expected = padded(most, case.cp_size, case.strategy, contract)
    graphs = case.strategy in contract.graph_strategies
    for rank, answer in enumerate(seen.required or ()):
        if answer is None and not graphs:
            continue
        if answer != expected:
            return f"rank {rank} requires {answer} rows, the largest rank owns {most}: {expected} padded"
        if len(seen.rows[rank]) > answer:
            return f"rank {rank} requires {answer} rows, its shard has {len(seen.rows[rank])}"
    return None


@every_turn
def no_overflow(turn: Turn) -> str | None:
    """Live rows on every rank <= rows captured for the bucket that admission implies.

    Judged before replay: a release may crash there instead of losing rows.
    """
    if turn.why_eager:
        return None
    rows, owned = turn.rows, turn.live[turn.rank]
    if rows is not None and owned > rows:
        return f"rank {turn.rank} needs {turn.required} rows, bucket {turn.replays} captured {rows}"
    fed = turn.loaded.live_rows if isinstance(turn.loaded, Loaded) else None
    lost = f"rank {turn.rank} has {owned} live rows, {fed} were fed to the graph"
    return lost if fed is not None and fed < owned else None


def pile_up(case: LayoutCase, seen: LayoutSeen) -> bool:
    """Remainders of several requests: more rows than one request with as many tokens."""
    one = live_rows((case.batch.num_tokens,), case.cp_size, case.strategy)
    return max(live_rows(case.batch.lengths, case.cp_size, case.strategy)) > max(one)


def overflows_by_tokens(turn: Turn) -> bool:
    if turn.why_eager or not (picked := fitting(turn.question(tokens_alone=True))):
        return False
    return max(turn.live) > dict(turn.captured.bucket_local_tokens).get(picked[0], turn.batch.num_tokens)


INVARIANTS = [
    invariant(
        "capacity.required",
        part("layout", required, "capacity", remainders_pile_up=pile_up),
        sources="sglang#33906 sglang#26911",
    ),
    invariant(
        "capacity.no-overflow",
        part("replay", no_overflow, the_bucket_that_tokens_alone_pick_would_overflow=some_turn(overflows_by_tokens)),
        sources="sglang#33906",
    ),
]
