"""capture.*: what is captured can run, and is exactly what the selector may choose from."""

from cpbcg_ref.answers import Captured, CaptureSeen, Raised
from cpbcg_ref.cases import CaptureCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import PLAIN, fitted, padded, shards, what
from cpbcg_ref.invariants.model import Sentences, invariant
from cpbcg_ref.oracles.buckets import has_legal_split
from cpbcg_ref.oracles.tokens import live_rows, smallest_multiple

Lengths = tuple[int, ...]


def rounded(server: Server, contract: Contract) -> list[int]:
    """The asked ladder, rounded up as this engine declares."""
    unit = contract.ladder * server.cp_size or 1
    return sorted({smallest_multiple(bucket, unit) for bucket in server.capture_num_tokens})


def capturable(server: Server, contract: Contract) -> list[int]:
    """Buckets of the ladder that have a legal split."""
    sharding = server.strategy == "zigzag" and server.cp_size > 1
    shortest, step = contract.min_length * server.cp_size if sharding else 1, max(contract.divides * server.cp_size, 1)
    limits = {"shortest": shortest, "longest": server.context_length, "step": step}
    large_enough = [bucket for bucket in rounded(server, contract) if bucket >= max(shortest, server.cp_size)]
    return [bucket for bucket in large_enough if has_legal_split(bucket, **limits)]


def a_bucket_must_be_dropped(case: CaptureCase, seen: CaptureSeen) -> bool:
    return 0 < len(capturable(case.server, PLAIN)) < len(set(case.server.capture_num_tokens))


@invariant("capture.legal", a_bucket_must_be_dropped, family="capture", sources="21112 22516 30206 33200 36262")
def legal(case: CaptureCase, seen: CaptureSeen, contract: Contract) -> Sentences:
    """Synthetic capture requests are legal, shardable and sum to the bucket; a bucket that cannot be is dropped, not
    crashed on; captured list = selectable list."""
    server, ladder = case.server, ",".join(map(str, case.server.capture_num_tokens))
    if server.cp_size > 1 and server.strategy not in contract.graph_strategies:
        return
    setup = f"ladder {ladder}, context {server.context_length}, cp {server.cp_size}"
    for rank, captured in enumerate(seen.ranks):
        for wrong in on_rank(captured, server, contract):
            yield fitted(f"rank {rank} {wrong}", setup)
        if isinstance(captured, Captured) and captured != seen.ranks[0]:
            yield fitted(f"rank {rank} captured other buckets, requests or rows than rank 0", setup)


def on_rank(captured: Captured | Raised, server: Server, contract: Contract) -> Sentences:
    expected = capturable(server, contract)
    if isinstance(captured, Raised):
        if expected:  # else raising is right
            yield f"raised {what(captured)}, bucket {expected[0]} is legal"
        return
    buckets, requests = list(captured.capture_num_tokens), dict(captured.requests)
    if buckets != sorted(set(buckets)) or buckets != sorted(requests):
        yield f"may select {buckets}, captured {sorted(requests)}"
    if not buckets:
        yield "captured no bucket and did not say so"
    rows = dict(captured.bucket_local_tokens)
    for bucket, lengths in captured.requests:
        for wrong in wrong_split(bucket, lengths, rows.get(bucket), server, contract):
            yield f"captured bucket {bucket} as {','.join(map(str, lengths))}: {wrong}"
    for bucket in expected:
        if bucket not in buckets and server.cp_size > 1:
            yield f"dropped bucket {bucket}, which has a legal split"


def wrong_split(bucket: int, lengths: Lengths, rows: int | None, server: Server, contract: Contract) -> Sentences:
    if bucket not in rounded(server, contract):
        yield "nobody asked for it"
    if sum(lengths) != bucket:
        yield f"{sum(lengths)} tokens"
    if max(lengths, default=0) > server.context_length:
        yield f"over the context of {server.context_length}"
    if server.cp_size == 1:
        return  # without CP a bucket has as many rows as tokens, and nothing has to be shardable
    if not shards(lengths, server.cp_size, server.strategy, contract):
        yield "cannot be sharded"
    owned = live_rows(lengths, server.cp_size, server.strategy, contract.blocks)
    due = padded(max(owned), server.cp_size, server.strategy, contract)
    if rows != due:
        yield f"{'no' if rows is None else rows} rows recorded, not {due}"
