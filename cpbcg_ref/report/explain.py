"""One batch on one server, worked out by the reference: rows per rank, required rows, each bucket's verdict."""

from collections.abc import Sequence
from typing import Any

import cpbcg_ref

FACTOR = 2  # largest bucket / tokens of the batch


def explain(
    lengths: Sequence[int], *, captured: Sequence[tuple[int, int]], align: int | None = None, **group: Any
) -> dict[str, Any]:
    """The numbers behind one choice. captured: (bucket, rows) ascending; group: cp_size and strategy.

    Raises InvalidInput for values that no server can have.
    """
    required = cpbcg_ref.required_local_tokens(lengths, alignment=align, **group)
    graph = group["cp_size"] == 1 or cpbcg_ref.is_cp_active(lengths, **group)
    chosen = cpbcg_ref.select_replay_bucket(
        num_tokens=sum(lengths),
        required_local_tokens=required if graph else None,
        capture_num_tokens=[bucket for bucket, _ in captured],
        bucket_local_tokens=dict(captured),
        max_padding_factor=FACTOR,
    )

    def verdict(bucket: int, rows: int) -> str:
        if bucket == chosen:
            return "chosen"
        refusals = {
            "CP is not active for this batch": not graph,
            f"{bucket} tokens < {sum(lengths)} of the batch": bucket < sum(lengths),
            f"{rows} rows < {required} required": rows < (required or 0),
            f"{bucket} tokens > {FACTOR} x {sum(lengths)} of the batch": bucket > FACTOR * sum(lengths),
        }
        refused = ", ".join(why for why, holds in refusals.items() if holds)
        return f"refused: {refused}" if refused else f"fits, but {chosen} is smaller"

    return {
        "rows_per_rank": list(cpbcg_ref.per_rank_logical_tokens(lengths, **group)),
        "required_local_tokens": required,
        "buckets": [
            {"bucket": bucket, "captured": rows, "verdict": verdict(bucket, rows)} for bucket, rows in captured
        ],
        "chosen": chosen,
    }
