"""One group of ranks serving one list of batches, under any driver."""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import cpbcg_ref
from cpbcg_ref import cases
from cpbcg_ref.answers import Raised
from cpbcg_ref.asking import answered
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.reference import ReferenceServer, known
from cpbcg_ref.errors import InvalidInput, TargetError
from gpu_conformance import processes
from gpu_conformance.checks import Finding
from gpu_conformance.failure import raised
from gpu_conformance.lockstep import lockstep
from gpu_conformance.model import Doing, Model
from gpu_conformance.plan import Plan
from gpu_conformance.plants import PLANTS, Plant
from gpu_conformance.rank import Rank
from gpu_conformance.work import Decide, Offer, Seen, work

KINDS = ("kill", "stop", "loop", "raise", "bucket", "skip")


@dataclass(frozen=True, kw_only=True)
class Inject:
    """A rank that fails at a batch: KIND:RANK@BATCH, such as kill:2@10."""

    kind: str
    rank: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class Group:
    """driver: lockstep, gloo or nccl. slots: of every rank's cache. workload: what its batches are.

    model: on the CPU. device: cpu or cuda, where each rank gets its own copy.
    """

    driver: str
    server: cases.Server
    model: Model
    offers: tuple[Offer, ...]
    slots: int
    workload: str = ""
    device: str = "cpu"
    plant: str = ""
    inject: Inject | None = None
    timeout_s: float = 20.0

    def serve(self, engine: Any, *, tell: Callable[[str], None] = lambda doing: None) -> list[Seen]:
        """What every rank saw. Raises Failure if one failed. tell: is told what the first rank begins."""
        if reason := "" if self.driver == "lockstep" else processes.unavailable():
            raise InvalidInput(f"driver {self.driver} cannot run here: {reason}")
        ranks, started = self.server.cp_size, self.start(engine)
        work = partial(self.rank, engine, started)
        if self.driver == "lockstep":
            return lockstep([work(cp_rank) for cp_rank in range(ranks)], tell=tell)
        how: dict[str, Any] = {"timeout_s": self.timeout_s, "on_gpus": self.on_gpus, "tell": tell}
        return list(map(seen_of, processes.run(work, ranks=ranks, encode=asdict, **how)))

    @property
    def on_gpus(self) -> bool:
        """Has each rank a GPU of its own."""
        return self.driver == "nccl"

    @property
    def name(self) -> str:
        return f"{self.driver} cp {self.server.cp_size}, {self.workload}, {self.model.arithmetic.name}"

    def start(self, engine: Any) -> Any:
        """The engine's captured server or what it raises, or the reference's around its selector. TargetError if it has
        neither, Failure if the adapter raises."""
        if missing(engine, "replay") and (lacking := missing(engine, "selection")):
            raise TargetError(f"{engine.name} {engine.version} chooses no bucket: {lacking}")
        if missing(engine, "replay"):
            return SelectorOnly(self.server, engine)
        try:
            return answered(engine, engine.start, self.server)
        except Exception as problem:
            raise raised(0, "starting the engine", problem) from problem

    def rank(self, engine: Any, started: Any, cp_rank: int, seen: Seen | None = None) -> Generator[Any, Any, Seen]:
        """The generator of one rank. Nothing of it runs, and no GPU is touched, before its process starts it.

        seen: what to report in, for who wants to look before the end.
        """
        yield Doing(what="asking what was captured")
        plant = PLANTS.get(self.plant, Plant(what="nothing", caught_by=()))
        captured = started if isinstance(started, Raised) else answered(engine, started.captured, cp_rank=cp_rank)
        truth, parts = self.placed, plant.parts(cp_rank)
        rank = Rank(cp_rank=cp_rank, cp_size=self.server.cp_size, truth=truth, slots=self.slots, parts=parts)
        inject = self.inject if self.inject and self.inject.rank == cp_rank else None
        if self.plant == "one-batch-ahead" and cp_rank == 1:
            inject = Inject(kind="skip", rank=1, batch=len(self.offers) // 2)
        choose = plant.decide or partial(decide, engine)
        choose = disturbed(choose, inject) if inject else choose
        told: Seen = yield from work(rank, started, captured, offered(self.offers, inject), decide=choose, seen=seen)
        return told

    @property
    def placed(self) -> Model:
        """The model where a rank computes; cuda is the GPU that its process took when it joined, or the first."""
        return self.model if self.device == self.model.device else replace(self.model, device=self.device)


def offered(offers: Sequence[Offer], inject: Inject | None) -> Iterator[tuple[int, Offer]]:
    """The batches with their numbers; a rank that skips one goes on with the next."""
    for number, offer in enumerate(offers):
        if not (inject and inject.kind == "skip" and inject.batch == number):
            yield number, offer


def disturbed(choose: Decide, inject: Inject) -> Decide:
    """Chooses like `choose`; at one batch the rank's misfortune happens."""

    def chosen(started: Any, batch: Plan, *, cp_rank: int, number: int) -> Any:
        right = choose(started, batch, cp_rank=cp_rank, number=number)
        if number != inject.batch:
            return right
        befall(inject.kind)
        ladder = started.captured(cp_rank).capture_num_tokens
        return next(bucket for bucket in (*ladder, None) if bucket != right) if inject.kind == "bucket" else right

    return chosen


def befall(kind: str) -> None:
    if kind in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    while kind == "loop":
        pass
    if kind == "raise":
        raise RuntimeError("injected: this rank raises")


def decide(engine: Any, started: Any, batch: Plan, *, cp_rank: int, number: int) -> Any:
    """The engine's own choice; `Raised` where it raises. What the adapter raises goes up: the rank fails."""
    asked = cases.Batch(lengths=batch.lengths, prefixes=tuple(one.prefix for one in batch.sequences))
    admitted = answered(engine, started.can_run_graph, asked, cp_rank=cp_rank)
    if isinstance(admitted, Raised) or not admitted:
        return admitted or None
    return answered(engine, started.select, asked, cp_rank=cp_rank)


class SelectorOnly(ReferenceServer):
    """The reference around another engine's selector."""

    def __init__(self, server: cases.Server, engine: Any) -> None:
        super().__init__(server, cpbcg_ref)
        self.engine = engine

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        if not self.is_cp_active(batch, cp_rank):
            return None
        bucket: int | None = self.engine.select_replay_bucket(
            num_tokens=batch.num_tokens,
            required_local_tokens=cpbcg_ref.required_local_tokens(known(batch), **self.table.group),
            capture_num_tokens=list(self.table.capture_num_tokens),
            bucket_local_tokens=dict(self.table.bucket_local_tokens),
            max_padding_factor=self.server.max_padding_factor,
            min_replay_bucket=self.server.min_replay_bucket,
        )
        return bucket

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        return self.select(batch, cp_rank) is not None


def seen_of(told: dict[str, Any]) -> Seen:
    """Back from JSON."""
    return Seen(**told | {"findings": [Finding(**finding) for finding in told["findings"]]})
