"""Ladders of buckets, and calls of the selector on the edges of its three rules."""

from collections.abc import Sequence
from dataclasses import replace

from cpbcg_ref.cases import CaptureCase, SelectCase, SelectPairCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.strategies.choices import Pick, read_off

SIZES = (2, 4, 1, 3, 8, 2, 4, 1, 5, 4, 16)  # simplest first, the usual ones more often
LONG_CONTEXT = 131072  # tokens
SERVER_BYTES, SELECT_BYTES = 12, 24


def cp_sizes(contract: Contract, *, least: int = 1) -> list[int]:
    """Group sizes that the engine supports, at least `least`."""
    return [size for size in (*SIZES, *contract.cp_sizes) if size in contract.cp_sizes and size >= least]


def graphs(contract: Contract) -> tuple[str, ...]:
    """The layouts that the engine captures graphs for, the first one twice as often: it has the remainders.

    The last one is the simplest: interleave shards two tokens where zigzag needs four.
    """
    return (*contract.graph_strategies[::-1], contract.graph_strategies[0])


def server(pick: Pick, contract: Contract) -> Server:
    """A server whose whole ladder every engine can capture: up to five buckets, close, far apart or doubling.

    `cp_size` may be 1. One in eleven has a layout that the engine shards but captures no graphs for, if there is one.
    """
    cp_size = pick(cp_sizes(contract))
    graphless = [name for name in contract.strategies if name not in contract.graph_strategies and cp_size > 1]
    strategy = pick((*graphs(contract) * 5, *graphless))
    unit, steps = max(2, contract.min_length) * cp_size, pick.part(4)
    blocks = (3, 4, 8, unit // 2, 6, 16, unit, 1, 2, 64)
    first = [unit * many + more for many in blocks for more in (unit - 1, 0, 0, 1)]
    first += range(cp_size, unit) if strategy == "interleave" else ()
    ladder = [pick([min(first), 4 * unit - 1, *sorted(first)])]  # the second: three requests can overflow it
    for _ in range(4):
        ladder.append(ladder[-1] + steps((0, unit, 1, ladder[-1], unit + 1, 4 * unit, 16 * unit)))
    ladder = sorted(set(ladder))
    context = pick(contexts(ladder, unit))
    made = Server(cp_size=cp_size, capture_num_tokens=tuple(ladder), context_length=context, strategy=strategy)
    return replace(made, min_replay_bucket=pick(floors(contract, ladder)))


def contexts(ladder: Sequence[int], unit: int) -> list[int]:
    """Longest requests, some shorter than a bucket, with which every engine can capture the whole ladder.

    Also an engine that cuts a bucket at each context length and so has a short last piece; the reference splits evenly.
    """
    cuts = {ladder[-1], ladder[-1] - unit, *(bucket // 2 for bucket in ladder), *ladder[:-1]}
    whole = [cut for cut in cuts if cut >= unit and all((bucket % cut or cut) >= unit for bucket in ladder)]
    return [LONG_CONTEXT, LONG_CONTEXT, *sorted(whole, reverse=True)]


def floors(contract: Contract, ladder: Sequence[int]) -> list[int]:
    """The opt-in floor: off, or where the engine has one also a bucket or just below the first."""
    return [0, 0, *ladder, ladder[0] - 1] if contract.min_replay_bucket else [0]


def capture_case(pick: Pick, contract: Contract, server: Server | None = None) -> CaptureCase:
    """Ladders that hold traps: buckets below one shard, a rest too short to shard, a context shorter than a bucket.

    Mostly at least one bucket is legal, unless the trap is a context below `2 * cp_size`.
    """
    if server:
        return CaptureCase(server=server)
    cp_size, strategy = pick(cp_sizes(contract, least=2)), pick(graphs(contract))
    unit = 2 * cp_size
    short = 1 + pick(range(unit - 1))
    trap = pick(("too long", "short rest", "tiny bucket", "short rest", "none", "tiny context"))
    context = short if trap == "tiny context" else unit * pick((1, 1, 2, 3, 8)) + pick((0, 1, unit - 1))
    base = pick((1, 2, 3, 4)) * context
    kept = pick((0, base, base, base))
    trapped = {"too long": base + context, "short rest": base + short, "tiny bucket": short}.get(trap, unit)
    more = [pick((0, base + unit, 2 * unit, base - 1, unit, 2 * base)) for _ in range(3)]
    ladder = tuple(sorted({kept, trapped, *more} - {0}))
    made = Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=context, strategy=strategy)
    return CaptureCase(server=made)


def select_case(pick: Pick, contract: Contract, server: Server | None = None) -> SelectCase:
    """One selection: buckets at T, T + 1, 2T and 2T + 1, rows around the required ones, some of them unknown."""
    if server:
        ladder = server.capture_num_tokens
        tokens = max(1, pick(ladder) // pick((1, 2)) - pick((0, 1, 2, -1)))
    else:
        tokens = 1 + pick((pick(range(64)), pick(range(4096))))
        by = (0, 1, 8, -1, tokens, tokens + 1, tokens - 1, tokens // 2, tokens // 4, 3 * tokens, -(tokens // 2))
        ladder = tuple(sorted({max(1, tokens + pick(by)) for _ in range(pick((1, 6, 2, 6, 4)))}))
    required = 1 + pick(range(tokens))
    rows = (required, required + 8, required - 1, required + 1, 2 * required, None, 0)
    known = tuple((bucket, count) for bucket in ladder if (count := pick(rows)) is not None)
    case = SelectCase(
        num_tokens=tokens, required_local_tokens=required, capture_num_tokens=ladder, bucket_local_tokens=known
    )
    if not server:
        return replace(case, min_replay_bucket=pick(floors(contract, ladder)))
    return replace(case, max_padding_factor=server.max_padding_factor, min_replay_bucket=server.min_replay_bucket)


def select_pair_case(pick: Pick, contract: Contract, server: Server | None = None) -> SelectPairCase:
    """A selection, and the same with more rows for one bucket, or one bucket more: one that cannot matter, or the one
    that is right from then on."""
    base = select_case(pick.part(SELECT_BYTES), contract, server)
    ladder, rows = base.capture_num_tokens, dict(base.bucket_local_tokens)
    own, plenty, over = pick(ladder), 4 * base.num_tokens, max(2 * base.num_tokens, base.min_replay_bucket) + 1
    grown = (own, rows[own] + 8 if own in rows else base.required_local_tokens)
    useless = ((base.num_tokens - 1, plenty), (over, plenty), (over - 1, None))
    right = (base.num_tokens, max(rows.get(base.num_tokens, 0), base.required_local_tokens))
    bucket, held = pick((grown, grown, grown, *useless, right))
    if bucket < 1 or (bucket in ladder and bucket not in (own, right[0])):
        return SelectPairCase(base=base, more=base)
    table = sorted((rows if held is None else rows | {bucket: held}).items())
    more = replace(base, capture_num_tokens=tuple(sorted({*ladder, bucket})), bucket_local_tokens=tuple(table))
    return SelectPairCase(base=base, more=more)


servers = read_off(SERVER_BYTES, server)
capture_cases = read_off(12, capture_case)
select_cases = read_off(SELECT_BYTES, select_case)
select_pair_cases = read_off(SELECT_BYTES + 2, select_pair_case)
