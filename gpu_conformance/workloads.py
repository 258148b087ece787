"""Batches to replay: edges, big beside small, chunks of long prompts, golden batches, prompts of real traces.

Sizes come first (lengths and prefixes), then `Requests` gives them token ids and cache slots.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from cpbcg_ref import CaptureTable, required_local_tokens
from cpbcg_ref.cases import Batch, Server
from cpbcg_ref.strategies.batches import BATCH_BYTES, REQUESTS, batch, fill
from cpbcg_ref.strategies.choices import Pick
from gpu_conformance.plan import Request
from gpu_conformance.work import Offer

VOCABULARY = 97
PROMPTS = (150, 70, 333)  # prefilled in chunks
GOLDEN_LADDER, GOLDEN_CONTEXT, GOLDEN_SLOTS = (2048, 2304, 2560), 2048, 2561
GOLDEN = ((1534, 161, 353), (9,) * 200, (257,) * 7 + (249,))
SEVERAL = (
    ((8, 9, 40, 11, 8), (1, 64, 7, 0, 100)),
    ((17, 33, 9), (63, 0, 65)),
    ((12, 12, 12, 12, 12, 12, 12), (0, 1, 2, 3, 4, 5, 6)),
    ((9,) * 14, (31,) * 14),
    ((100, 8, 8), (0, 400, 3)),
)


def edges(server: Server, *, batches: int, seed: int, most: int) -> Iterator[Batch]:
    """Batches from the property suite's own generator: they fill buckets to the last tokens, with prefixes.

    most: tokens of a batch, cached ones included.
    """
    drawn = random.Random(seed)
    while batches:
        made = batch(Pick(drawn.randbytes(BATCH_BYTES)), server)
        if made.lengths_known and 0 not in made.lengths and 0 < sum(made.lengths + made.prefixes) <= most:
            batches -= 1
            yield made


def fixed(server: Server) -> Iterator[Batch]:
    """What must not be left to chance: every bucket's overflow, a batch too short for CP, one over every bucket."""
    for lengths in (*overflows(server), (min(2 * server.cp_size - 1, server.context_length),)):
        yield Batch(lengths=lengths, prefixes=(0,) * len(lengths))
    more = evenly(server.capture_num_tokens[-1] + 2 * server.cp_size, server)
    yield Batch(lengths=more, prefixes=(0,) * len(more))


def overflows(server: Server) -> Iterator[tuple[int, ...]]:
    """Per bucket, if there is one, a batch of as many tokens that needs more rows than it captured."""
    table = CaptureTable(ladder=server.capture_num_tokens, cp_size=server.cp_size, context_length=server.context_length)
    unit = 2 * server.cp_size
    for bucket, rows in table.bucket_local_tokens.items():
        shapes = {"unit": unit, "longest": server.context_length}
        tried = (
            fill(bucket, requests=count, remainder=rest, **shapes) for count in REQUESTS for rest in range(1, unit)
        )
        found = (one for one in tried if (required_local_tokens(one, **table.group) or 0) > rows)
        yield from [one for one in [next(found, None)] if one]


def big_small_big(server: Server) -> Iterator[Batch]:
    """In each bucket: full, half full, full. What the first leaves behind shows in the second."""
    for bucket in server.capture_num_tokens:
        for total in (bucket, bucket // 2 + 1, bucket):
            yield Batch(lengths=evenly(total, server), prefixes=(0,) * len(evenly(total, server)))


def evenly(total: int, server: Server) -> tuple[int, ...]:
    """Two requests, or as many as the context demands; one where half of it is too short to be sharded."""
    count = max(2 if total // 2 >= 2 * server.cp_size else 1, -(-total // server.context_length))
    return tuple(total // count + (number < total % count) for number in range(count))


def golden(server: Server) -> Iterator[Batch]:
    """Batches of the specification, where they fit the ladder."""
    for lengths in GOLDEN:
        if sum(lengths) <= server.capture_num_tokens[-1]:
            yield Batch(lengths=lengths, prefixes=(0,) * len(lengths))


def several_with_prefixes(server: Server) -> Iterator[Batch]:
    """Several requests, each on another prefix, around pages and block edges; those that the context holds."""
    for lengths, prefixes in SEVERAL:
        if max(map(sum, zip(lengths, prefixes, strict=True))) <= server.context_length:
            yield Batch(lengths=lengths, prefixes=prefixes)


@dataclass(kw_only=True)
class Requests:
    """Token ids and cache slots for batches, drawn from one seed; slot 0 is scratch and never given away."""

    slots: int
    drawn: random.Random = field(default_factory=lambda: random.Random(0))

    def offer(self, sizes: Batch) -> Offer:
        """The batch on free slots in any order, as a paged cache has them after a while."""
        wholes = [prefix + length for prefix, length in zip(sizes.prefixes, sizes.lengths, strict=True)]
        free = iter(self.drawn.sample(range(1, self.slots), sum(wholes)))
        made = [self.request(whole, prefix, free) for whole, prefix in zip(wholes, sizes.prefixes, strict=True)]
        return Offer(requests=tuple(made))

    def request(self, whole: int, prefix: int, free: Iterator[int]) -> Request:
        tokens = tuple(self.drawn.randrange(VOCABULARY) for _ in range(whole))
        return Request(tokens=tokens, prefix=prefix, slots=tuple(next(free) for _ in range(whole)))

    def chunked(self, prompts: Sequence[int], *, chunk: int) -> Iterator[Offer]:
        """Long prompts prefilled together, `chunk` new tokens of each at a time, over what is cached by then."""
        (whole,) = (self.offer(Batch(lengths=tuple(prompts), prefixes=(0,) * len(prompts))).requests,)
        for done in range(0, max(prompts), chunk):
            going_on = [one for one in whole if len(one.tokens) > done]
            parts = [up_to(one, done, min(done + chunk, len(one.tokens))) for one in going_on]
            yield Offer(requests=tuple(parts), chunked=done > 0)

    def prefilled(self, prompts: Iterable[int], *, budget: int, batches: int) -> Iterator[Offer]:
        """Prompts in order of arrival, `budget` new tokens in each batch at most."""
        wholes: list[Request] = []
        for parts in islice(packed(prompts, budget=budget), batches):
            wholes = wholes[-1:] if parts[0][1] else []
            for prompt, _, _ in parts[len(wholes) :]:
                wholes.append(self.beside(wholes, prompt))
            offered = [up_to(whole, start, end) for whole, (_, start, end) in zip(wholes, parts, strict=True)]
            yield Offer(requests=tuple(offered), chunked=True)

    def beside(self, held: Iterable[Request], prompt: int) -> Request:
        """A prompt on slots that none of the others holds."""
        taken = {slot for one in held for slot in one.slots}
        free = [slot for slot in range(1, self.slots) if slot not in taken]
        return self.request(prompt, 0, iter(self.drawn.sample(free, prompt)))


def up_to(request: Request, prefix: int, end: int) -> Request:
    return Request(tokens=request.tokens[:end], prefix=prefix, slots=request.slots[:end])


def packed(prompts: Iterable[int], *, budget: int) -> Iterator[list[tuple[int, int, int]]]:
    """Batches of at most `budget` new tokens: (prompt, from, to) of each part; only a first part goes on.

    A prompt that does not fit beside the others waits; one that fits no batch is cut.

    >>> list(packed([10, 50, 8], budget=32))
    [[(10, 0, 10)], [(50, 0, 32)], [(50, 32, 50), (8, 0, 8)]]
    """
    parts: list[tuple[int, int, int]] = []
    for prompt in prompts:
        if parts and sum(end - start for _, start, end in parts) + prompt > budget:
            yield parts
            parts = []
        done = 0
        while prompt - done > budget:
            yield [(prompt, done, done + budget)]
            done += budget
        parts.append((prompt, done, prompt))
    if parts:
        yield parts
