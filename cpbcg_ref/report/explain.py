"""One batch on one server, worked out by the reference: rows per rank, required rows, each bucket's verdict."""

from collections.abc import Sequence
from typing import Any

import cpbcg_ref
from cpbcg_ref.cases import SelectCase
from cpbcg_ref.oracles.buckets import verdicts


def explain(
    lengths: Sequence[int], *, captured: Sequence[tuple[int, int]], align: int | None = None, **group: Any
) -> dict[str, Any]:
    """The numbers behind one choice. captured: (bucket, rows) ascending; group: cp_size and strategy.

    Raises InvalidInput for values that no server can have.
    """
    required = cpbcg_ref.required_local_tokens(lengths, alignment=align, **group)
    active = group["cp_size"] == 1 or cpbcg_ref.is_cp_active(lengths, **group)
    needed, ladder = required if active else None, tuple(bucket for bucket, _ in captured)
    asked: dict[str, Any] = {"num_tokens": sum(lengths), "required_local_tokens": needed, "capture_num_tokens": ladder}
    chosen = cpbcg_ref.select_replay_bucket(**asked, bucket_local_tokens=dict(captured))
    told = {bucket: ["CP is not active for this batch"] for bucket in ladder}
    if needed is not None:
        told = verdicts(SelectCase(**asked, bucket_local_tokens=tuple(captured)))
    owned = list(cpbcg_ref.per_rank_logical_tokens(lengths, **group))
    buckets = [{"bucket": bucket, "captured": rows, "verdict": "; ".join(told[bucket])} for bucket, rows in captured]
    return {"rows_per_rank": owned, "required_local_tokens": required, "buckets": buckets, "chosen": chosen}
