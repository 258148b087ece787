"""All small cases of a kind, smallest first, by nested loops: what no generator had a hand in."""

from itertools import chain, combinations, product

from cpbcg_ref import cases
from cpbcg_ref.oracles.tokens import shardable

RANKS = (1, 2, 3, 4)
LONG = 131072


def parts(total, count, least=1):
    """All tuples of `count` numbers >= `least` that sum to `total`."""
    if count == 0:
        return [()] if total == 0 else []
    rest = least * (count - 1)
    return [(one, *more) for one in range(least, total - rest + 1) for more in parts(total - one, count - 1, least)]


def batches(size, *, prefixes, orders):
    """All batches of this size: with cached tokens if asked for, in all orders of requests or ascending."""
    for requests in range(size + 1):
        for cached in range(size - requests + 1) if prefixes and requests else (0,):
            for lengths in parts(size - requests - cached, requests):
                if orders or list(lengths) == sorted(lengths):
                    for held in parts(cached, requests, least=0):
                        yield cases.Batch(lengths=lengths, prefixes=held)


def layout_cases(size, contract, *, shards=False):
    """shards: only zigzag, ascending and without prefixes, for what depends on nothing but remainders."""
    strategies = ("zigzag",) if shards else contract.strategies
    every = batches(size, prefixes=not shards, orders=not shards)
    for batch, cp_size, strategy in product(every, RANKS, strategies):
        if shardable(batch.lengths, cp_size, strategy, **contract.sharding):
            for spare in (0, 1, contract.aligned(1, cp_size=cp_size, strategy=strategy)):
                yield cases.LayoutCase(cp_size=cp_size, batch=batch, strategy=strategy, spare_rows=spare)


def bad_layout_cases(size, contract):
    for requests, cp_size, strategy in product(range(size + 1), RANKS[1:], contract.strategies):
        for lengths in parts(size - requests, requests, least=0):
            for signs in product((1, -1), repeat=requests):
                signed = tuple(sign * length for sign, length in zip(signs, lengths, strict=True))
                if not shardable(signed, cp_size, strategy, **contract.sharding):
                    yield cases.BadLayoutCase(cp_size=cp_size, lengths=signed, strategy=strategy)


def capture_cases(size, contract):
    ladders, groups = combinations(range(1, 17), size), product(RANKS[1:], contract.graph_strategies)
    for ladder, (cp_size, strategy), context in product(ladders, groups, range(1, 18)):
        server = {"capture_num_tokens": ladder, "context_length": context, "strategy": strategy}
        yield cases.CaptureCase(server=cases.Server(cp_size=cp_size, **server))


def select_cases(size, contract):
    for tokens, ladder in product(range(1, 5), combinations(range(1, 11), size)):
        for rows in product((None, *range(5)), repeat=size):
            table = tuple((bucket, held) for bucket, held in zip(ladder, rows, strict=True) if held is not None)
            for required, floor in product(range(1, tokens + 1), (0, *range(ladder[0] - 1, ladder[-1] + 1))):
                asked = {"num_tokens": tokens, "required_local_tokens": required, "min_replay_bucket": floor}
                yield cases.SelectCase(capture_num_tokens=ladder, bucket_local_tokens=table, **asked)


def replay_cases(size, contract, *, several=False, prefixes=False, buckets=1, shards=False, alike=False):
    """One batch, or two in order for servers that remember; ladders around what the batches need.

    shards: only batches that zigzag shards on known lengths: interleave has no remainders to pile up. alike: only
    batches of as many tokens.
    """
    for first in range(size + 1) if several else (size,):
        sizes = (first, size - first) if several else (size,)
        choices = [[one for one in batches(part, prefixes=prefixes, orders=False) if one.lengths] for part in sizes]
        for offered in product(*choices):
            if alike and len({batch.num_tokens for batch in offered}) > 1:
                continue
            if not shards or min(min(batch.lengths) for batch in offered) >= 4:
                yield from on_servers(offered, contract, buckets, shards)


def on_servers(offered, contract, buckets, shards):
    tokens = [batch.num_tokens for batch in offered]
    longest = max(n + p for batch in offered for n, p in zip(batch.lengths, batch.prefixes, strict=True))
    near = range(max(1, min(tokens) - 1), 2 * max(tokens) + 2)
    ladders = chain.from_iterable(combinations(near, many) for many in range(1, buckets + 1))
    strategies = ("zigzag",) if shards else contract.strategies
    for ladder, cp_size, strategy in product(ladders, RANKS[1:] if shards else RANKS, strategies):
        cuts = {LONG, *(context for k in (1, 2, 3) if (context := -(-ladder[-1] // k)) >= longest)}
        for context, floor in product(sorted(cuts), (0,) if shards else (0, *ladder)):
            server = {"capture_num_tokens": ladder, "context_length": context, "strategy": strategy}
            made = cases.Server(cp_size=cp_size, min_replay_bucket=floor, **server)
            yield cases.ReplayCase(server=made, batches=offered)
            if not shards:
                yield cases.ReplayCase(server=made, batches=tuple(map(unknown, offered)))


def unknown(batch):
    return cases.Batch(lengths=batch.lengths, prefixes=batch.prefixes, lengths_known=False)


SMALL = {
    "layout": layout_cases,
    "bad-layout": bad_layout_cases,
    "capture": capture_cases,
    "select": select_cases,
    "replay": replay_cases,
}
