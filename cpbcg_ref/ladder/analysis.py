"""Which totals of a server's batches can fall back to eager, and what to capture so that none does."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, cast

from cpbcg_ref.capture import CaptureTable
from cpbcg_ref.errors import check, refuse
from cpbcg_ref.ladder.cover import Room, cover
from cpbcg_ref.ladder.model import Analysis, Fallback, Ladder, Totals
from cpbcg_ref.ladder.needs import rows, smallest
from cpbcg_ref.ladder.shape import Shape
from cpbcg_ref.layout import required_local_tokens

MOST = 2**20
Needs = dict[int, int]  # by total: the rows that its worst batch needs


def analyse_ladder(
    ladder: tuple[int, ...] | list[int],
    *,
    cp_size: int,
    context_length: int,
    max_padding_factor: float = 2,
    max_requests: int | None = None,
    max_tokens: int | None = None,
    strategy: str = "zigzag",
) -> Analysis:
    """Exactly the totals (tokens of a batch) of which some active batch can fall back to eager, and ladders without.

    Considered are all batches of at most `max_requests` requests, each within the context and long enough to be
    sharded. Totals to serve end at `max_tokens`; if None, at the largest captured bucket over the padding factor, as
    larger batches can need more rows than any bucket has. Raises InvalidInput for what no server can have.

    >>> found = analyse_ladder((16, 32, 256), cp_size=4, context_length=64)
    >>> [(one.totals, one.why, one.batch) for one in found.fallbacks if one.to_serve]
    [((27, 32), 'rows', (9, 9, 9)), ((33, 127), 'tokens', (33,))]
    >>> found.to_serve, [*found.smallest.captured], [*found.extended.captured]
    ((8, 128), [8, 18, 38, 78, 158], [16, 32, 38, 78, 158, 256])
    """
    shape = Shape(cp_size=cp_size, context_length=context_length, max_requests=max_requests, strategy=strategy)
    check(int | None, least=shape.least, what="the most tokens of a batch to serve", max_tokens=max_tokens)
    group: dict[str, Any] = {"cp_size": cp_size, "context_length": context_length, "strategy": strategy}
    table = CaptureTable(ladder=cast(Any, ladder), max_padding_factor=max_padding_factor, **group)
    largest = table.capture_num_tokens[-1]
    last = max_tokens or max(shape.least, int(largest / max_padding_factor))
    if max(last, largest) > MOST:
        refuse("the largest total", max(last, largest), f"each up to it is looked at: at most {MOST} tokens")
    return analysed(shape, table, last)


def analysed(shape: Shape, table: CaptureTable, last: int) -> Analysis:
    given, factor = dict(table.bucket_local_tokens), table.max_padding_factor
    needed = worst(shape, max(last, *given))
    falling = short(needed, Room(given, factor))
    wanted, lacking = (up_to(last, some) for some in (needed, falling))
    least = captured(shape, cover(shape, wanted, factor=factor))
    added = captured(shape, cover(shape, lacking, factor=factor))
    return Analysis(
        shape=shape,
        max_padding_factor=factor,
        given=Ladder(captured=given, more_rows=0),
        dropped=tuple(bucket for bucket in table.ladder if bucket not in given),
        to_serve=(shape.least, last),
        fallbacks=tuple(fallbacks(shape, falling, Room(given, factor), last)),
        unservable=tuple(in_a_row(short(wanted, Room(least, factor)))),
        smallest=beside(given, least),
        extended=beside(given, dict(sorted((given | added).items()))),
        is_smallest=[*wanted.values()] == sorted(wanted.values()),
    )


def worst(shape: Shape, last: int) -> Needs:
    """The totals that some active batch has."""
    found = ((total, rows(shape, total)) for total in range(shape.least, last + 1))
    return {total: need for total, need in found if need}


def short(needed: Needs, room: Room) -> Needs:
    """Those of which some batch falls back."""
    return {total: need for total, need in needed.items() if need > room.most(total)}


def up_to(last: int, needed: Needs) -> Needs:
    return {total: need for total, need in needed.items() if total <= last}


def captured(shape: Shape, buckets: Iterable[int]) -> dict[int, int]:
    return {bucket: shape.captured(bucket) for bucket in buckets}


def beside(given: Mapping[int, int], other: Mapping[int, int]) -> Ladder:
    return Ladder(captured=other, more_rows=sum(other.values()) - sum(given.values()))


def fallbacks(shape: Shape, falling: Needs, room: Room, last: int) -> Iterator[Fallback]:
    """By totals in a row that fall back for one reason, and are to be served or not."""
    for (no_bucket, to_serve), run in groupby(falling, lambda total: (room.most(total) < 0, total <= last)):
        for totals in in_a_row(run):
            held = None if no_bucket else room.most(totals[0])
            batch = smallest(shape, totals[0], above=-1 if held is None else held)
            need = required_local_tokens(batch, cp_size=shape.cp_size, strategy=shape.strategy) or 0
            yield Fallback(totals=totals, to_serve=to_serve, batch=batch, rows=need, held=held)


def in_a_row(totals: Iterable[int]) -> Iterator[Totals]:
    """Ranges without a gap."""
    for _, run in groupby(enumerate(totals), lambda one: one[1] - one[0]):
        found = [total for _, total in run]
        yield found[0], found[-1]
