"""Batches of requests: what a layout must survive, and what finds a bucket that is too small.

Uniform lengths almost never overflow a bucket. Batches do that fill a bucket to within `2 * cp_size - 1` tokens with
many requests of one remainder, since the remainders of all requests pile up on the same ranks.
"""

from dataclasses import replace

from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase, ReplayCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.strategies.choices import Pick, read_off
from cpbcg_ref.strategies.selection import SERVER_BYTES, cp_sizes, server

PAGE = 64  # tokens of one page of the KV cache
LARGE = 3670  # a long cached prefix, no multiple of a page
LAYOUT_TOKENS = 640  # payloads are lists of one int per token
REQUESTS = (1, 3, 2, 4, 5, 3, 6, 7, 8, 12, 16, 24, 32, 64)  # as many of them as fit
KINDS = (*("filled",) * 8, "short", "unknown", "short", "empty", "drawn", "drawn")
BATCH_BYTES = 20
Lengths = tuple[int, ...]


def legal_lengths(unit: int, step: int = 1) -> list[int]:
    """Lengths that an engine can shard: around multiples of `unit`, then spread; multiples of `step`."""
    around = [unit * blocks + by for blocks in (1, 2, 3, 5) for by in (0, 1, -1)]
    wanted = (*around, *range(unit, 2 * unit), PAGE, 3 * PAGE + 5, 500)
    return sorted(length for length in wanted if length >= unit and length % step == 0) or [unit * step]


def drawn(pick: Pick, legal: list[int], *, most: int) -> list[int]:
    """Up to eight lengths, sometimes all of them again and again; cut where the total would pass `most` tokens.

    A request is left out where nothing is picked, so that shrinking can drop any of them.
    """
    some = [pick((0, *legal)) for _ in range(8)][: pick((8, 1, 2, 3))]
    lengths = [length for length in some if length] * pick((*(1,) * 13, 2, 8, 16)) or legal[:1]
    while len(lengths) > 1 and sum(lengths) > most:
        lengths.pop()
    return lengths


def batch_of(pick: Pick, lengths: Lengths, *, known: bool = True, room: int = LARGE) -> Batch:
    """Cached tokens of the first request, or of every other one: none, 1, a page, many; at most `room`."""
    cached, every = min(pick((0, 0, 0, 1, PAGE, LARGE)), room), pick((len(lengths), 2, 1))
    prefixes = tuple(0 if i % every else cached for i in range(len(lengths)))
    return Batch(lengths=lengths, prefixes=prefixes, lengths_known=known)


def group(pick: Pick, contract: Contract, server: Server | None) -> tuple[int, str]:
    """Ranks and layout of a group that shards: the server's, or any that the engine supports."""
    if server:
        return server.cp_size, server.strategy
    return pick(cp_sizes(contract, least=2)), pick(contract.strategies[::-1])  # interleave shards fewer tokens


def layout_case(pick: Pick, contract: Contract, server: Server | None = None) -> LayoutCase:
    """An active batch on 2 ranks or more, with no, one alignment's or more spare captured rows."""
    cp_size, strategy = group(pick, contract, server)
    unit = max(1, contract.min_length * cp_size) if strategy == "zigzag" else 1
    spare = pick((0, 1, 3)) * contract.aligned(1, cp_size=cp_size, strategy=strategy)
    lengths = drawn(pick, legal_lengths(unit, max(1, contract.divides * cp_size)), most=LAYOUT_TOKENS)
    lengths = lengths[: contract.max_requests or None]
    if strategy == "interleave":
        lengths[-1] += max(0, cp_size - sum(lengths))  # a token per rank
    batch = batch_of(pick, tuple(lengths), room=LARGE if contract.cached_prefixes else 0)
    return LayoutCase(cp_size=cp_size, batch=batch, strategy=strategy, spare_rows=spare)


def bad_layout_case(pick: Pick, contract: Contract, server: Server | None = None) -> BadLayoutCase:
    """One length that cannot be sharded among good ones, good ones with a factor that cuts them, or no request."""
    cp_size, strategy = group(pick, contract, server)
    least, step, factor = contract.min_length * cp_size, max(1, contract.divides * cp_size), 0
    lowest = -cp_size if contract.negative_lengths else 0
    bad = [length for length in (0, 1, cp_size, least - 1, -1, -cp_size) if lowest <= length < least]
    bad += [least + 1] if (least + 1) % step else []
    if strategy == "interleave":  # any length will do, as long as the batch has a token per rank
        lengths = pick(((-1,), (pick(range(cp_size)),), (1 + cp_size, -1)))
    else:
        good = [pick(legal_lengths(max(1, least), step)) for _ in range(4)][: pick(range(5))]
        good = good[: contract.max_requests - 1] if contract.max_requests else good
        if contract.padding_factor:
            good, factor = good or [1], pick([n for n in range(2, 3 * cp_size + 1) if n % (2 * cp_size)])
        if bad:
            good.insert(pick(range(len(good) + 1)), pick(bad))
        lengths = tuple(good) if bad or factor else ()
    some = BadLayoutCase(cp_size=cp_size, lengths=lengths, strategy=strategy, padding_factor=factor)
    return pick([some] * 15 + [replace(some, lengths=())])


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


def shortest(server: Server) -> int:
    """Tokens of the shortest batch that this server shards."""
    return server.cp_size * (1 if server.strategy == "interleave" else 2)


def filled(pick: Pick, server: Server, bucket: int, *, beside: int) -> Lengths:
    """Mostly just under the bucket; half of the time with a remainder that leaves the ranks most uneven."""
    unit, largest = 2 * server.cp_size, server.capture_num_tokens[-1]
    under = [bucket - short for short in range(unit)] * (1 + 16 // unit if server.cp_size > 1 else 1)
    edges = (bucket // 2, (bucket - 1) // 2, bucket // 2 + 1, bucket + 1, largest + 1, 2 * largest)
    total = max(shortest(server), pick((*under, *edges)) - beside)
    requests = pick(REQUESTS)
    remainder = pick((*(1, server.cp_size + 1) * server.cp_size, *range(unit)))
    return fill(total, requests=requests, unit=unit, remainder=remainder, longest=server.context_length)


def batch(pick: Pick, server: Server) -> Batch:
    """One batch for this server: fills a bucket, or is not active, not known, empty, or of any drawn lengths."""
    unit, longest = 2 * server.cp_size, server.context_length
    kind, bucket = pick(KINDS), pick(server.capture_num_tokens)
    if kind == "empty":
        return Batch(lengths=(), prefixes=())
    short = (1 + pick(range(max(1, shortest(server) - 1))),) if kind == "short" else ()
    if kind == "drawn":
        lengths = tuple(min(length, longest) for length in drawn(pick, legal_lengths(unit), most=bucket))
    else:
        lengths = filled(pick, server, bucket, beside=sum(short))
    if short:  # alone, or beside good requests
        lengths = pick((short, lengths + short, lengths + short))
    return batch_of(pick, lengths, known=kind != "unknown", room=max(0, longest - max(lengths)))


def as_one(batch: Batch, server: Server) -> list[Batch]:
    """As many tokens in one request, where that is no longer than the context."""
    fits = 0 < batch.num_tokens <= server.context_length
    return [Batch(lengths=(batch.num_tokens,), prefixes=(0,))] if fits else []


def replay_case(pick: Pick, contract: Contract, pinned: Server | None = None) -> ReplayCase:
    """A captured ladder and 1 to 8 batches.

    One case in two offers the first batch again at the end; one in four offers before each batch as many tokens in one
    request, which may need fewer rows.
    """
    asked, twice = pinned or server(pick.part(SERVER_BYTES), contract), pick(("", "again", "as one", "again"))
    parts = [pick.part(1 + BATCH_BYTES) for _ in range(4)]
    offered = [batch(part, asked) for part in parts if part((False, True))] or [batch(parts[0], asked)]
    if twice == "again" and len(offered) > 1:
        offered.append(offered[0])
    if twice == "as one":
        offered = [one for batch in offered for one in (*as_one(batch, asked), batch)]
    return ReplayCase(server=asked, batches=tuple(offered))


batches = read_off(BATCH_BYTES, batch)
layout_cases = read_off(20, layout_case)
bad_layout_cases = read_off(12, bad_layout_case)
replay_cases = read_off(SERVER_BYTES + 1 + 4 * (1 + BATCH_BYTES), replay_case)
