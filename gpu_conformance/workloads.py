"""Batches to replay: edges, big beside small, chunks of long prompts, golden batches, prompts of real traces.

Sizes come first (lengths and prefixes), then `Requests` gives them token ids and cache slots.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cpbcg_ref.cases import Batch, Server
from cpbcg_ref.strategies.batches import BATCH_BYTES, batch
from cpbcg_ref.strategies.choices import Pick
from gpu_conformance.plan import Request
from gpu_conformance.work import Offer

VOCABULARY = 97
GOLDEN = ((1534, 161, 353), (257,) * 7 + (249,), (9, 9, 9))


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


def big_small_big(server: Server) -> Iterator[Batch]:
    """In each bucket: full, half full, full. What the first leaves behind shows in the second."""
    for bucket in server.capture_num_tokens:
        for total in (bucket, bucket // 2 + 1, bucket):
            yield Batch(lengths=(total - total // 2, total // 2), prefixes=(0, 0))


def golden(server: Server) -> Iterator[Batch]:
    """Batches of the specification, where they fit the ladder."""
    for lengths in GOLDEN:
        if sum(lengths) <= server.capture_num_tokens[-1]:
            yield Batch(lengths=lengths, prefixes=(0,) * len(lengths))


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


def up_to(request: Request, prefix: int, end: int) -> Request:
    return Request(tokens=request.tokens[:end], prefix=prefix, slots=request.slots[:end])


def packed(prompts: Iterable[int], *, most: int, longest: int) -> Iterator[Batch]:
    """Prompts in order of arrival, as many in a batch as `most` tokens hold; longer ones are left out."""
    waiting: list[int] = []
    for prompt in prompts:
        if prompt > min(most, longest):
            continue
        if sum(waiting) + prompt > most:
            yield Batch(lengths=tuple(waiting), prefixes=(0,) * len(waiting))
            waiting = []
        waiting.append(prompt)
    if waiting:
        yield Batch(lengths=tuple(waiting), prefixes=(0,) * len(waiting))
