"""One seeded trial of a planted defect: how many batches, until each check that must see it has."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cpbcg_ref.cases import Server
from cpbcg_ref.engines.reference import Reference
from gpu_conformance import workloads
from gpu_conformance.arithmetic import EXACT, SMOOTH
from gpu_conformance.checks import Finding
from gpu_conformance.failure import Failure
from gpu_conformance.group import Group
from gpu_conformance.lockstep import lockstep
from gpu_conformance.model import Model, Shape
from gpu_conformance.plants import PLANTS
from gpu_conformance.work import Offer, Seen

CONTEXT, SLOTS, MOST_TOKENS, EDGES = 256, 1024, 900, 24
PROMPTS = (60, 25, 110)  # prefilled in chunks, last


@dataclass(kw_only=True)
class Stopping:
    """Batches for ranks in step, until `enough`. Whether there is a next one is told to all ranks alike."""

    offers: Sequence[Offer]
    enough: Callable[[], bool]
    begun: list[float] = field(default_factory=list)  # of each batch: seconds of CPU by then
    going: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offers)

    def __iter__(self) -> Iterator[Offer]:
        for number, offer in enumerate(self.offers):
            if number == len(self.going):
                self.going.append(not self.enough())
                self.begun.append(time.process_time())
            if not self.going[number]:
                return
            yield offer


@dataclass(frozen=True, kw_only=True)
class Hunted:
    """found: by id the first finding, and the seconds of CPU to the end of its batch. batches: that were begun."""

    found: dict[str, tuple[Finding, float]]
    batches: int
    seconds: float
    error: str = ""


def hunt(key: str, seed: int, *, cp_size: int = 2) -> Hunted:
    """Plant `key`, "" for nothing, in a group in step that serves generated batches; stop when all is found."""
    torch.set_num_threads(1)
    wanted = set(PLANTS[key].caught_by) if key else {"nothing"}
    seen, began = [Seen(cp_rank=rank) for rank in range(cp_size)], time.process_time()
    made = group(key, seed, cp_size=cp_size)
    batches = Stopping(
        offers=made.offers, enough=lambda: wanted <= {one.invariant for rank in seen for one in rank.findings}
    )
    object.__setattr__(made, "offers", batches)
    error = served(made, seen)
    ended = [*batches.begun[1:], time.process_time()]
    first: dict[str, tuple[Finding, float]] = {}
    for one in sorted((one for rank in seen for one in rank.findings), key=lambda one: one.batch):
        first.setdefault(one.invariant, (one, ended[max(one.batch, 0)] - began))
    return Hunted(found=first, batches=sum(batches.going), seconds=time.process_time() - began, error=error)


def served(made: Group, seen: Sequence[Seen]) -> str:
    """What went wrong, if the group could not go on."""
    engine: Any = Reference()
    started = made.start(engine)
    try:
        lockstep([made.rank(engine, started, rank, seen[rank]) for rank in range(made.server.cp_size)])
    except Failure as failure:
        return f"rank {failure.rank} {failure.kind} at {failure.last_operation}: {failure.detail}"
    return ""


def group(key: str, seed: int, *, cp_size: int) -> Group:
    """Both arithmetics take turns: with odd seeds every sum is exact."""
    server = Server(cp_size=cp_size, capture_num_tokens=tuple(cp_size * n for n in (8, 12, 16)), context_length=CONTEXT)
    model = Model(shape=Shape(positions=CONTEXT), arithmetic=EXACT if seed % 2 else SMOOTH)
    requests = workloads.Requests(slots=SLOTS, drawn=random.Random(seed))
    edges = workloads.edges(server, batches=EDGES, seed=seed, most=MOST_TOKENS)
    sizes, chunk = [*edges, *workloads.big_small_big(server)], server.capture_num_tokens[-1] // len(PROMPTS)
    offers = (*map(requests.offer, sizes), *requests.chunked(PROMPTS, chunk=chunk))
    return Group(driver="lockstep", server=server, model=model, offers=offers, slots=SLOTS, plant=key)
