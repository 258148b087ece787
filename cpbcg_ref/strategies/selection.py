"""Ladders of buckets, and calls of the selector on the edges of its three rules."""

from functools import cache

from hypothesis import strategies as st

from cpbcg_ref.cases import CaptureCase, SelectCase, SelectPairCase, Server
from cpbcg_ref.engines.contract import Contract

SIZES = (2, 4, 1, 3, 8, 2, 4, 1, 5, 4, 16)  # simplest first, the usual ones more often
LONG_CONTEXT = 131072  # tokens
DOUBLE = 0  # a step of the ladder that doubles the bucket before it
Ladder = tuple[int, ...]


@cache
def one_of(*values: int) -> st.SearchStrategy[int]:
    """`sampled_from` without rebuilding it in every example; shrinks to the first value."""
    return st.sampled_from(values)


@cache
def between(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@cache
def cp_sizes(contract_sizes: tuple[int, ...], least: int = 1) -> st.SearchStrategy[int]:
    """Group sizes that the engine supports, at least `least`."""
    usual = [size for size in SIZES if size in contract_sizes and size >= least]
    rare = [size for size in contract_sizes if size not in SIZES and size >= least]
    return st.sampled_from(usual + rare)


@cache
def graph_strategies(contract_strategies: tuple[str, ...]) -> st.SearchStrategy[str]:
    """The layouts that the engine captures graphs for, the first one twice as often: it has the remainders."""
    return st.sampled_from((contract_strategies[0], *contract_strategies))


def can_capture(bucket: int, *, context_length: int, unit: int) -> bool:
    """Does every engine find synthetic requests for this bucket, also one that cuts it at each `context_length`?

    Then the last piece decides; the reference, which splits evenly, accepts these buckets and more.
    """
    last = bucket % context_length or context_length
    return min(bucket, context_length, last) >= unit


@cache
def ladders(unit: int) -> st.SearchStrategy[Ladder]:
    """Up to five buckets of at least `unit` tokens: one apart, a shard apart, far apart, doubling."""
    sizes = [
        unit * blocks + more for blocks in (3, 4, 8, unit // 2, 6, 16, unit, 1, 2, 64) for more in (0, 0, 1, unit - 1)
    ]
    steps = st.lists(one_of(unit, 1, DOUBLE, unit + 1, 4 * unit, 16 * unit), max_size=4)
    return st.builds(climb, st.sampled_from(sizes), steps)


def climb(first: int, steps: list[int]) -> Ladder:
    """
    >>> climb(16, [1, DOUBLE])
    (16, 17, 34)
    """
    ladder = [first]
    for step in steps:
        ladder.append(2 * ladder[-1] if step == DOUBLE else ladder[-1] + step)
    return tuple(ladder)


def contexts(ladder: Ladder, *, unit: int) -> list[int]:
    """Context lengths under which every bucket can be captured, some of them shorter than a bucket."""
    cuts = {ladder[-1], ladder[-1] - unit, *(bucket // 2 for bucket in ladder), *ladder[:-1]}
    legal = [
        context
        for context in sorted(cuts, reverse=True)
        if context > 0 and all(can_capture(bucket, context_length=context, unit=unit) for bucket in ladder)
    ]
    return [LONG_CONTEXT, LONG_CONTEXT, *legal]


@st.composite
def servers(draw: st.DrawFn, contract: Contract) -> Server:
    """A server whose whole ladder every engine can capture; `cp_size` may be 1."""
    cp_size = draw(cp_sizes(tuple(contract.cp_sizes)))
    unit = max(2, contract.min_length) * cp_size
    ladder = draw(ladders(unit))
    return Server(
        cp_size=cp_size,
        capture_num_tokens=ladder,
        context_length=draw(st.sampled_from(contexts(ladder, unit=unit))),
        strategy=draw(graph_strategies(tuple(contract.graph_strategies))),
        min_replay_bucket=draw(floor(contract, ladder)),
    )


def floor(contract: Contract, ladder: Ladder, server: Server | None = None) -> st.SearchStrategy[int]:
    """The opt-in floor: the server's; else off, or where the engine has one also a bucket or just below the first."""
    if server:
        return st.just(server.min_replay_bucket)
    return st.sampled_from([0, 0, *ladder, max(ladder[0] - 1, 0)] if contract.min_replay_bucket else [0])


@st.composite
def capture_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> CaptureCase:
    """Ladders that hold traps: buckets below one shard, a rest too short to shard, a context shorter than a bucket.

    A trap is drawn per case. At least one bucket is legal unless the trap is a context below `2 * cp_size`.
    """
    if server:
        return CaptureCase(server=server)
    cp_size = draw(cp_sizes(tuple(contract.cp_sizes), 2))
    unit = 2 * cp_size
    trap = draw(st.sampled_from(["too long", "short rest", "tiny bucket", "short rest", "none", "tiny context"]))
    context = unit * draw(one_of(1, 1, 2, 3, 8)) + draw(one_of(0, 1, unit - 1))
    if trap == "tiny context":
        context = draw(between(1, unit - 1))
    base = (1 + draw(between(0, 3))) * context
    extra = {
        "too long": base + context,
        "short rest": base + draw(between(1, unit - 1)),
        "none": unit,
        "tiny bucket": draw(between(1, unit - 1)),
        "tiny context": unit,
    }[trap]
    more = draw(st.lists(st.sampled_from([base + unit, 2 * unit, base - 1, unit, 2 * base]), max_size=3))
    ladder = {bucket for bucket in (base, extra, *more) if bucket > 0}
    return CaptureCase(
        server=Server(
            cp_size=cp_size,
            capture_num_tokens=tuple(sorted(ladder)),
            context_length=context,
            strategy=draw(graph_strategies(tuple(contract.graph_strategies))),
        )
    )


@cache
def edges(num_tokens: int) -> st.SearchStrategy[int]:
    """Buckets on both sides of each rule for a batch of `num_tokens`."""
    near = [num_tokens + by for by in (0, 1, 8, -1)]
    far = [2 * num_tokens + by for by in (0, 1, -1)]
    spread = [3 * num_tokens // 2, 5 * num_tokens // 4, 4 * num_tokens, num_tokens // 2]
    return st.sampled_from([bucket for bucket in (*near, *far, *spread) if bucket > 0])


@st.composite
def select_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> SelectCase:
    """One selection: buckets at T, T + 1, 2T and 2T + 1, rows around the required ones, some of them unknown."""
    if server:
        ladder = server.capture_num_tokens
        num_tokens = max(1, draw(st.sampled_from(ladder)) // draw(one_of(1, 2)) - draw(one_of(0, 1, 2, -1)))
    else:
        num_tokens = draw(st.one_of(between(1, 64), between(1, 4096)))
        ladder = tuple(sorted(set(draw(st.lists(edges(num_tokens), min_size=1, max_size=6)))))
    required = draw(between(1, num_tokens))
    rows = st.sampled_from([required, required + 8, required - 1, required + 1, 2 * required, None, 0])
    table = [(bucket, draw(rows)) for bucket in ladder]
    return SelectCase(
        num_tokens=num_tokens,
        required_local_tokens=required,
        capture_num_tokens=ladder,
        bucket_local_tokens=tuple((bucket, count) for bucket, count in table if count is not None),
        max_padding_factor=server.max_padding_factor if server else 2,
        min_replay_bucket=draw(floor(contract, ladder, server)),
    )


@st.composite
def select_pair_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> SelectPairCase:
    """A selection, and the same with more rows for one bucket or with one bucket more that cannot matter."""
    base = draw(select_cases(contract, server))
    if draw(st.booleans()):
        return SelectPairCase(base=base, more=with_rows(base, draw(st.sampled_from(base.capture_num_tokens))))
    low, high = base.num_tokens - 1, max(2 * base.num_tokens, base.min_replay_bucket) + 1
    bucket, rows = draw(st.sampled_from([(low, 4 * base.num_tokens), (high, 4 * base.num_tokens), (high - 1, None)]))
    return SelectPairCase(base=base, more=with_bucket(base, bucket, rows))


def with_rows(case: SelectCase, bucket: int) -> SelectCase:
    """The same selection, where `bucket` has one alignment more rows; an unknown capacity becomes the required one."""
    rows = dict(case.bucket_local_tokens)
    rows[bucket] = rows[bucket] + 8 if bucket in rows else case.required_local_tokens
    return replaced(case, case.capture_num_tokens, rows)


def with_bucket(case: SelectCase, bucket: int, rows: int | None) -> SelectCase:
    """The same selection on a ladder with one bucket more, or the same case where it is there already or is none."""
    if bucket < 1 or bucket in case.capture_num_tokens:
        return case
    table = dict(case.bucket_local_tokens) | ({} if rows is None else {bucket: rows})
    return replaced(case, tuple(sorted((*case.capture_num_tokens, bucket))), table)


def replaced(case: SelectCase, ladder: Ladder, rows: dict[int, int]) -> SelectCase:
    table = tuple((bucket, rows[bucket]) for bucket in ladder if bucket in rows)
    return SelectCase(
        num_tokens=case.num_tokens,
        required_local_tokens=case.required_local_tokens,
        capture_num_tokens=ladder,
        bucket_local_tokens=table,
        max_padding_factor=case.max_padding_factor,
        min_replay_bucket=case.min_replay_bucket,
    )
