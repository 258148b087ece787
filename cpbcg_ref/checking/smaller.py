"""Cases with fewer requests, tokens, batches, buckets or ranks: what shrinks a length and the ladder around it at once.

Hypothesis shrinks the bytes that a case is read off, one or two at a time. A bucket that is as large as its batch does
not get smaller that way, nor do lengths that only fail together, nor a sequence with a pass in it that does not matter.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cpbcg_ref.cases import (
    AttemptsCase,
    BadLayoutCase,
    Batch,
    CaptureCase,
    DispatchCase,
    LastPassCase,
    LayoutCase,
    PassesCase,
    ReplayCase,
    SelectCase,
    Step,
)
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.oracles.tokens import shardable

SEQUENCES = {PassesCase: "passes", LastPassCase: "history", AttemptsCase: "attempts"}


def smaller(case: Any, contract: Contract) -> Iterator[Any]:
    """Cases that are smaller and still ones that this engine can be asked, the much smaller ones first.

    >>> case = LayoutCase(cp_size=2, batch=Batch(lengths=(4, 4), prefixes=(0, 0)))
    >>> [one.batch.lengths for one in smaller(case, Contract())]
    [(4,), (4,)]
    """
    yield from MAKERS.get(type(case), nothing)(case, contract)


def nothing(case: Any, contract: Contract) -> Iterator[Any]:
    return iter(())


def without(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """All but some neighbours: half of them at first, at last one; never none."""
    for many in sorted({len(items) // 2, len(items) // 4, 2, 1}, reverse=True):
        for at in range(len(items) - many + 1) if 0 < many < len(items) else ():
            yield items[:at] + items[at + many :]


def lower(number: int, unit: int) -> list[int]:
    """Smaller numbers, those with the same remainder first."""
    same = [unit + number % unit, number - number // unit // 2 * unit, number - unit]
    return [one for one in dict.fromkeys((*same, number // 2, number - 1)) if 0 <= one < number]


def smaller_batches(batch: Batch, unit: int) -> Iterator[Batch]:
    """unit: what a length can lose without another remainder."""
    requests = tuple(zip(batch.lengths, batch.prefixes, strict=True))
    made = [*without(requests), tuple((min(length, unit + length % unit), prefix) for length, prefix in requests)]
    for i, (length, prefix) in enumerate(requests):
        lowered = [(one, prefix) for one in lower(length, unit) if one]
        lowered += [(length, one) for one in dict.fromkeys((0, 1, *lower(prefix, unit))) if one < prefix]
        made += [(*requests[:i], one, *requests[i + 1 :]) for one in lowered]
    for some in made:
        if some != requests:
            lengths, prefixes = zip(*some, strict=True)
            yield replace(batch, lengths=lengths, prefixes=prefixes)


def on_fewer_ranks(batch: Batch, cp_size: int, contract: Contract) -> Iterator[tuple[int, Batch]]:
    """As many requests on fewer ranks, each as short as zigzag shards, or a token longer where it had a remainder."""
    for ranks in sorted(size for size in contract.cp_sizes if 2 <= size < cp_size):
        lengths = tuple(2 * ranks + (length % (2 * cp_size) > 0) for length in batch.lengths)
        if sum(lengths) < batch.num_tokens:
            yield ranks, replace(batch, lengths=lengths)


def layouts(case: LayoutCase, contract: Contract) -> Iterator[LayoutCase]:
    for ranks, batch in on_fewer_ranks(case.batch, case.cp_size, contract):
        if shardable(batch.lengths, ranks, case.strategy, **contract.sharding):
            yield replace(case, batch=batch, cp_size=ranks)
    for strategy in dict.fromkeys((case.strategy, *contract.strategies)):
        for batch in smaller_batches(case.batch, 2 * case.cp_size):
            if shardable(batch.lengths, case.cp_size, strategy, **contract.sharding):
                yield replace(case, batch=batch, strategy=strategy)


def bad_layouts(case: BadLayoutCase, contract: Contract) -> Iterator[BadLayoutCase]:
    for lengths in without(case.lengths):
        if case.padding_factor or not shardable(lengths, case.cp_size, case.strategy, **contract.sharding):
            yield replace(case, lengths=lengths)


def replays(case: ReplayCase, contract: Contract) -> Iterator[ReplayCase]:
    """The batches, or one of them and the ladder, or all of them and the ladder."""
    server, unit = case.server, 2 * case.server.cp_size
    for ranks, batch in on_fewer_ranks(case.batches[0], server.cp_size, contract) if len(case.batches) == 1 else ():
        other = replace(case, server=replace(server, cp_size=ranks))
        yield from with_ladders(other, (batch,), case.batches[0].num_tokens - batch.num_tokens)
    for strategy in dict.fromkeys((server.strategy, *contract.graph_strategies)):
        other = replace(case, server=replace(server, strategy=strategy))
        for offered in without(case.batches):
            yield replace(other, batches=offered)
        for i, batch in enumerate(case.batches):
            for made in smaller_batches(batch, unit):
                offered = (*case.batches[:i], made, *case.batches[i + 1 :])
                yield from with_ladders(other, offered, batch.num_tokens - made.num_tokens)
        most = max((batch.num_tokens for batch in case.batches), default=0)
        for fewer in lower(most, unit):
            offered = tuple(shortened(batch, most - fewer) for batch in case.batches)
            yield from with_ladders(other, offered, most - fewer)
    for ladder in without(server.capture_num_tokens):
        yield replace(case, server=replace(server, capture_num_tokens=ladder))


def with_ladders(case: ReplayCase, offered: tuple[Batch, ...], fewer: int) -> Iterator[ReplayCase]:
    """These batches on the same ladder, on one with so many tokens fewer, and on one bucket for the largest of them.

    With twice as many fewer too: a bucket may be twice as large as its batch.
    """
    if all(min(batch.lengths, default=1) > 0 for batch in offered) and offered != case.batches:
        yield replace(case, batches=offered)
        ladders = [tuple(bucket - less for bucket in case.server.capture_num_tokens) for less in (fewer, 2 * fewer)]
        ladders.append((max(batch.num_tokens for batch in offered),))
        for ladder in ladders:
            if fewer and ladder[0] > 0:
                yield replace(case, batches=offered, server=replace(case.server, capture_num_tokens=ladder))


def shortened(batch: Batch, fewer: int) -> Batch:
    """Its longest request by so many tokens."""
    longest = batch.lengths.index(max(batch.lengths)) if batch.lengths else None
    return replace(batch, lengths=tuple(n - fewer * (i == longest) for i, n in enumerate(batch.lengths)))


def selections(case: SelectCase, contract: Contract) -> Iterator[SelectCase]:
    for ladder in without(case.capture_num_tokens):
        known = tuple(pair for pair in case.bucket_local_tokens if pair[0] in ladder)
        yield replace(case, capture_num_tokens=ladder, bucket_local_tokens=known)


def dispatches(case: DispatchCase, contract: Contract) -> Iterator[DispatchCase]:
    """Without one rank or bucket, or with less to do on one rank."""
    for ranks in without(case.ranks):
        yield replace(case, ranks=ranks)
    for ladder in without(case.capture_num_tokens):
        if ladder[-1] == case.capture_num_tokens[-1]:
            yield replace(case, capture_num_tokens=ladder)
    for i, step in enumerate(case.ranks):
        for less in smaller_steps(step):
            yield replace(case, ranks=(*case.ranks[:i], less, *case.ranks[i + 1 :]))


def smaller_steps(step: Step) -> Iterator[Step]:
    for decodes in lower(step.decodes, 1):
        if decodes or step.prefills:
            yield replace(step, decodes=decodes)
    for prefills in (*without(step.prefills), ()):
        if step.prefills and (prefills or step.decodes):
            yield replace(step, prefills=prefills)
    for i, length in enumerate(step.prefills):
        for shorter in lower(length, 1):
            if shorter:
                yield replace(step, prefills=(*step.prefills[:i], shorter, *step.prefills[i + 1 :]))


def captures(case: CaptureCase, contract: Contract) -> Iterator[CaptureCase]:
    for ladder in without(case.server.capture_num_tokens):
        yield replace(case, server=replace(case.server, capture_num_tokens=ladder))


def of_fewer_ranks(case: PassesCase | LastPassCase, contract: Contract) -> Iterator[PassesCase | LastPassCase]:
    """Without one of the ranks in every pass; a replica that decides alone is one rank already."""
    config = case.config
    for gone in range(config.dp_size) if config.enable_dp_attention and config.dp_size > 1 else ():
        others = [rank for rank in range(config.dp_size) if rank != gone]
        told: dict[str, Any] = {"config": replace(config, dp_size=len(others))}
        for name in ("passes", "history"):
            if passes := getattr(case, name, ()):
                told[name] = tuple(tuple(one[rank] for rank in others) for one in passes)
        for name in ("last", "other_last") if isinstance(case, LastPassCase) else ():
            told[name] = tuple(getattr(case, name)[rank] for rank in others)
        yield replace(case, **told)


def leaner(case: Any) -> Iterator[Any]:
    """Every case that lacks one of its passes or attempts, the earliest first; none for a case that is no sequence.

    >>> from cpbcg_ref.cases import Attempt
    >>> [len(case.attempts) for case in leaner(AttemptsCase(attempts=(Attempt(), Attempt(admitted=2))))]
    [1, 1]
    """
    name = SEQUENCES.get(type(case), "")
    whole = getattr(case, name, ())
    for i in range(len(whole)):
        if len(whole) > 1 or name == "history":
            yield replace(case, **{name: whole[:i] + whole[i + 1 :]})


MAKERS: dict[type, Any] = {
    LayoutCase: layouts,
    BadLayoutCase: bad_layouts,
    ReplayCase: replays,
    SelectCase: selections,
    CaptureCase: captures,
    DispatchCase: dispatches,
    PassesCase: of_fewer_ranks,
    LastPassCase: of_fewer_ranks,
}
