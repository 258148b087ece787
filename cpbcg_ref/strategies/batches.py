"""Batches of requests: what a layout must survive, and what finds a bucket that is too small.

Uniform lengths almost never overflow a bucket. Batches do that fill a bucket to within `2 * cp_size - 1` tokens with
many requests of one remainder, since the remainders of all requests pile up on the same ranks.
"""

from functools import cache

from hypothesis import strategies as st

from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase, ReplayCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.strategies.selection import between, cp_sizes, one_of, servers

PAGE = 64  # tokens of one page of the KV cache
LARGE = 3670  # a long cached prefix, no multiple of a page
SPREAD = (PAGE, 3 * PAGE + 5, 500)
LAYOUT_TOKENS = 640  # payloads are lists of one int per token
MOST_REQUESTS = 64
Lengths = tuple[int, ...]


@cache
def legal_lengths(unit: int, step: int) -> st.SearchStrategy[int]:
    """Lengths that an engine can shard: around multiples of `unit`, then spread; multiples of `step`."""
    around = [unit * blocks + by for blocks in (1, 2, 3, 5) for by in (0, 1, -1)]
    wanted = [*around, *range(unit, 2 * unit), *SPREAD]
    return st.sampled_from([length for length in wanted if length >= unit and length % step == 0] or [unit * step])


@cache
def length_lists(unit: int, step: int, most_tokens: int) -> st.SearchStrategy[list[int]]:
    """Mostly up to 8 requests, sometimes up to 64; cut where the total would pass `most_tokens`."""
    lengths = legal_lengths(unit, step)
    few, many = st.lists(lengths, min_size=1, max_size=8), st.lists(lengths, min_size=9, max_size=MOST_REQUESTS)
    repeated = st.builds(lambda length, times: [length] * times, lengths, between(1, MOST_REQUESTS))
    return st.one_of(few, few, repeated, many).map(lambda drawn: cut(drawn, most_tokens))


def cut(lengths: list[int], most_tokens: int) -> list[int]:
    """The longest head with at most `most_tokens` tokens, at least one request."""
    kept, total = lengths[:1], lengths[0]
    for length in lengths[1:]:
        total += length
        if total > most_tokens:
            break
        kept.append(length)
    return kept


@st.composite
def with_prefixes(draw: st.DrawFn, lengths: Lengths, *, known: bool = True, room: int = LARGE) -> Batch:
    """Cached tokens of the first request, or of every other one: none, 1, a page, many; at most `room`."""
    cached, every = min(draw(one_of(0, 0, 0, 1, PAGE, LARGE)), room), 0
    if cached:
        every = draw(one_of(0, 2, 1))
    prefixes = tuple(cached if i == 0 or (every and i % every == 0) else 0 for i in range(len(lengths)))
    return Batch(lengths=lengths, prefixes=prefixes, lengths_known=known)


def groups(contract: Contract, server: Server | None) -> st.SearchStrategy[tuple[int, str]]:
    """Ranks and layout of a group that shards: the server's, or any that the engine supports."""
    if server:
        return st.just((server.cp_size, server.strategy))
    return st.tuples(cp_sizes(tuple(contract.cp_sizes), 2), st.sampled_from(contract.strategies))


@st.composite
def layout_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> LayoutCase:
    """An active batch on 2 ranks or more, with no, one alignment's or more spare captured rows."""
    cp_size, strategy = draw(groups(contract, server))
    unit = max(1, contract.min_length * cp_size) if strategy == "zigzag" else 1
    lengths = tuple(draw(length_lists(unit, max(1, contract.divides * cp_size), LAYOUT_TOKENS)))
    if sum(lengths) < cp_size:
        lengths += (cp_size,)  # interleave needs a token per rank
    return LayoutCase(
        cp_size=cp_size,
        batch=draw(with_prefixes(lengths)),
        strategy=strategy,
        spare_rows=draw(one_of(0, 1, 3)) * contract.aligned(1, cp_size=cp_size, strategy=strategy),
    )


@st.composite
def bad_layout_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> BadLayoutCase:
    """One length that cannot be sharded among good ones, or no request at all."""
    cp_size, strategy = draw(groups(contract, server))
    if draw(between(0, 15)) == 15:
        return BadLayoutCase(cp_size=cp_size, lengths=(), strategy=strategy)
    if strategy == "interleave":  # any length will do, as long as the batch has a token per rank
        few = (draw(between(0, cp_size - 1)),)
        return BadLayoutCase(cp_size=cp_size, lengths=draw(st.sampled_from([(-1,), few, (9, -1)])), strategy=strategy)
    least, step = contract.min_length * cp_size, max(1, contract.divides * cp_size)
    good = draw(st.lists(legal_lengths(max(1, least), step), max_size=4))
    bad = [*(length for length in (least - 1, 1, 0, cp_size) if 0 <= length < least), -1, -cp_size]
    bad += [least + 1] if (least + 1) % step else []
    lengths = list(good)
    lengths.insert(draw(between(0, len(good))), draw(st.sampled_from(bad)))
    return BadLayoutCase(cp_size=cp_size, lengths=tuple(lengths), strategy=strategy)


def fill(total: int, *, requests: int, unit: int, remainder: int, longest: int) -> Lengths:
    """Legal lengths that sum to `total`: all but the last are `remainder` more than a multiple of `unit`.

    Fewer requests where `total` is too small for so many, more where one would be longer than `longest`.

    >>> fill(64, requests=7, unit=8, remainder=1, longest=64)
    (9, 9, 9, 9, 9, 9, 10)
    """
    requests = max(min(requests, total // (unit + remainder)), -(-total // longest), 1)
    blocks = (total // requests - remainder) // unit
    rest = total - requests * (unit * blocks + remainder)
    lengths = [unit * (blocks + (i < rest // unit)) + remainder for i in range(requests)]
    lengths[-1] += rest % unit
    if blocks < 1 or max(lengths) > longest:
        base, more = divmod(total, requests)
        return tuple(base + (i < more) for i in range(requests))
    return tuple(lengths)


@cache
def totals(bucket: int, largest: int, unit: int) -> st.SearchStrategy[int]:
    """Tokens of a batch: mostly just under `bucket`, else on the edges of the padding bound or above every bucket."""
    under = [bucket - short for short in range(unit)]
    edge = [bucket // 2, (bucket - 1) // 2, bucket // 2 + 1, bucket + 1, largest + 1, 2 * largest]
    weight = 1 + 16 // unit
    return st.sampled_from([total for total in under * weight + edge if total >= unit] or [unit])


@cache
def remainders(cp_size: int) -> st.SearchStrategy[int]:
    """Half of the time one of the two that leave the ranks most uneven, else any."""
    return st.sampled_from([*(1, cp_size + 1) * cp_size, *range(2 * cp_size)])


ORDINARY, UNKNOWN, SHORT, EMPTY, DRAWN = range(5)
KINDS = (*(ORDINARY,) * 8, SHORT, UNKNOWN, SHORT, EMPTY, DRAWN, DRAWN)


@st.composite
def batches(draw: st.DrawFn, server: Server) -> Batch:
    """One batch for this server: fills a bucket, or is not active, not known, empty, or of any drawn lengths."""
    unit, longest = 2 * server.cp_size, server.context_length
    kind = draw(one_of(*KINDS))
    if kind == EMPTY:
        return Batch(lengths=(), prefixes=())
    bucket = draw(one_of(*server.capture_num_tokens))
    short = (draw(between(1, unit - 1)),) if kind == SHORT else ()
    if kind == DRAWN:
        lengths = tuple(min(length, longest) for length in draw(length_lists(unit, 1, bucket)))
    else:
        lengths = fill(
            max(unit, draw(totals(bucket, server.capture_num_tokens[-1], unit)) - sum(short)),
            requests=draw(between(1, min(MOST_REQUESTS, max(1, bucket // (unit + 1))))),
            unit=unit,
            remainder=draw(remainders(server.cp_size)),
            longest=longest,
        )
    if short:  # beside good requests, or alone
        lengths = draw(st.sampled_from([lengths + short, lengths + short, short]))
    return draw(with_prefixes(lengths, known=kind != UNKNOWN, room=max(0, longest - max(lengths))))


@st.composite
def replay_cases(draw: st.DrawFn, contract: Contract, server: Server | None = None) -> ReplayCase:
    """A captured ladder and 1 to 5 batches; one case in two offers the first batch again at the end."""
    server = server or draw(servers(contract))
    offered = draw(st.lists(batches(server), min_size=1, max_size=4))
    if len(offered) > 1 and draw(st.booleans()):
        offered.append(offered[0])
    return ReplayCase(server=server, batches=tuple(offered))
