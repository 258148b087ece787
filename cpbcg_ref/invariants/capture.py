"""capture.*: what is captured can run, and is exactly what the selector may choose from."""

from cpbcg_ref.answers import Captured, CaptureSeen, Raised
from cpbcg_ref.cases import CaptureCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import LIMIT, PLAIN, clip, invariant, part, shards, what
from cpbcg_ref.oracles.buckets import has_legal_split
from cpbcg_ref.oracles.tokens import live_rows, smallest_multiple


def legal(case: CaptureCase, seen: CaptureSeen, contract: Contract) -> str | None:
    """Synthetic capture requests are legal, shardable and sum to the bucket; a bucket that cannot be is dropped, not
    crashed on; captured list = selectable list.

    Raising is right if no bucket can be captured, and only then.
    """
    server = case.server
    if server.cp_size > 1 and server.strategy not in contract.graph_strategies:
        return None
    for rank, captured in enumerate(seen.ranks):
        wrong = wrong_on_rank(captured, server, contract)
        if not wrong and captured != seen.ranks[0] and not isinstance(captured, Raised):
            wrong = "captured other buckets, requests or rows than rank 0"
        if wrong:
            ladder = ",".join(map(str, server.capture_num_tokens))
            short = f"rank {rank} {wrong}"
            full = f"{short} (ladder {ladder}, context {server.context_length}, cp {server.cp_size})"
            return full if len(full) <= LIMIT else clip(short)
    return None


def rounded(server: Server, contract: Contract) -> list[int]:
    """The asked ladder, rounded up as this engine declares."""
    unit = contract.ladder * server.cp_size or 1
    return sorted({smallest_multiple(bucket, unit) for bucket in server.capture_num_tokens})


def capturable(server: Server, contract: Contract) -> list[int]:
    """Buckets of the ladder that have a legal split."""
    sharding = server.strategy == "zigzag" and server.cp_size > 1
    shortest = contract.min_length * server.cp_size if sharding else 1
    step = max(contract.divides * server.cp_size, 1)
    return [
        bucket
        for bucket in rounded(server, contract)
        if bucket >= max(shortest, server.cp_size)
        and has_legal_split(bucket, shortest=shortest, longest=server.context_length, step=step)
    ]


def wrong_on_rank(captured: Captured | Raised, server: Server, contract: Contract) -> str | None:
    expected = capturable(server, contract)
    if isinstance(captured, Raised):
        return f"raised {what(captured)}, though bucket {expected[0]} can be captured" if expected else None
    buckets, requests = list(captured.capture_num_tokens), dict(captured.requests)
    if buckets != sorted(set(buckets)) or buckets != sorted(requests):
        return f"may select {buckets}, captured {sorted(requests)}"
    if not buckets:
        return "captured no bucket and did not say so"
    for bucket, lengths in captured.requests:
        if wrong := wrong_requests(bucket, lengths, server, contract):
            return f"captured bucket {bucket} as {','.join(map(str, lengths))}: {wrong}"
    if server.cp_size == 1:
        return None  # without CP a bucket has as many rows as tokens, and nothing has to be shardable
    if missing := [bucket for bucket in expected if bucket not in buckets]:
        return f"dropped bucket {missing[0]}, which has a legal split"
    return too_few_rows(captured, server, contract)


def wrong_requests(bucket: int, lengths: tuple[int, ...], server: Server, contract: Contract) -> str | None:
    if bucket not in rounded(server, contract):
        return "nobody asked for it"
    if sum(lengths) != bucket:
        return f"{sum(lengths)} tokens"
    if max(lengths, default=0) > server.context_length:
        return f"over the context of {server.context_length}"
    sharded = server.cp_size == 1 or shards(lengths, server.cp_size, server.strategy, contract)
    return None if sharded else "cannot be sharded"


def too_few_rows(captured: Captured, server: Server, contract: Contract) -> str | None:
    recorded = dict(captured.bucket_local_tokens)
    for bucket, lengths in captured.requests:
        owned = live_rows(lengths, server.cp_size, server.strategy, contract.blocks)
        if recorded.get(bucket, -1) < max(owned):
            known = recorded.get(bucket, "no")
            return f"records {known} rows for bucket {bucket}, rank {owned.index(max(owned))} owns {max(owned)} of it"
    return None


def drops(case: CaptureCase, seen: CaptureSeen) -> bool:
    return 0 < len(capturable(case.server, PLAIN)) < len(set(case.server.capture_num_tokens))


def over_context(case: CaptureCase, seen: CaptureSeen) -> bool:
    return max(case.server.capture_num_tokens) > case.server.context_length


INVARIANTS = [
    invariant(
        "capture.legal",
        part("capture", legal, a_bucket_must_be_dropped=drops, a_bucket_is_longer_than_the_context=over_context),
        sources="sglang#21112 sglang#22516 sglang#30206 sglang#33200 sglang#36262",
    ),
]
