"""What the groups of a run add up to: one result per id, with the smallest batch that broke it and a command for it."""

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.checking.results import Counterexample, Result
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.pictures import table
from gpu_conformance import witnesses
from gpu_conformance.checks import Finding
from gpu_conformance.group import Group
from gpu_conformance.plan import Plan, plan
from gpu_conformance.scenarios import Asked
from gpu_conformance.work import Seen

IDS = tuple(name for name in REGISTRY if name.startswith(("data.", "agree.")) or name == "capacity.no-overflow")


@dataclass(frozen=True, kw_only=True)
class Served:
    """What came of one group: a `Seen` per rank, or the rank that failed."""

    group: Group
    seconds: float
    seen: tuple[Seen, ...] = ()
    failure: dict[str, Any] | None = None

    @property
    def driver(self) -> str:
        return self.group.driver

    @property
    def cp_size(self) -> int:
        return self.group.server.cp_size

    @property
    def arithmetic(self) -> str:
        return self.group.model.arithmetic.name

    @property
    def name(self) -> str:
        return self.group.name


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finding in its group."""

    served: Served
    finding: Finding

    @cached_property
    def plan(self) -> Plan | None:
        """None for what is no batch, such as the end."""
        offers = self.served.group.offers
        return (
            plan(offers[self.finding.batch].requests, self.served.cp_size) if 0 <= self.number < len(offers) else None
        )

    @property
    def number(self) -> int:
        return self.finding.batch

    @property
    def order(self) -> tuple[bool, bool, int]:
        """The smallest batch is shown. A chunk only if need be, for an earlier batch may have spoilt its prefix; one
        that ran eagerly only if none that was replayed is wrong."""
        chunked = bool(self.plan) and self.served.group.offers[self.number].chunked
        replayed = dict(self.served.seen[0].chosen).get(self.number, 0) > 0
        return chunked, not replayed, len(self.plan.tokens) if self.plan else 0

    @property
    def message(self) -> str:
        where = f"batch {self.number}" if self.plan else "no batch"
        return f"{self.served.name}, {where}: {self.finding.sentence}"


def results(done: Sequence[Served], asked: Asked | None = None, target: str = "reference") -> tuple[Result, ...]:
    """One per id: the smallest batch that violates it, or how many batches were judged on every rank."""
    return tuple(result(name, done, asked or Asked(), target) for name in IDS)


def result(name: str, done: Sequence[Served], asked: Asked, target: str) -> Result:
    found = [
        Found(served=one, finding=finding)
        for one in done
        for seen in one.seen
        for finding in seen.findings
        if finding.invariant == name
    ]
    judged = sum(max((seen.judged.get(name, 0) for seen in one.seen), default=0) for one in done)
    met = witnesses.met(name, done)
    told: dict[str, Any] = {"invariant": name, "level": REGISTRY[name].level, "examples": judged, "witnesses": met}
    told["shares"] = {witness: round(min(1.0, count / judged), 4) for witness, count in met.items() if judged}
    if found:
        return failed(found, told, asked, target)
    return Result(**told, **outcome(judged, [witness for witness, count in met.items() if not count]))


def outcome(judged: int, unmet: Sequence[str]) -> dict[str, Any]:
    if not judged:
        return {"outcome": "unwitnessed", "message": "no batch was judged by it", "stopped": "all batches served"}
    if unmet:
        told = f"never came up in {judged} batches: {', '.join(unmet)}"
        return {"outcome": "unwitnessed", "message": told, "stopped": "all batches served"}
    return {"outcome": "pass", "stopped": "all batches served"}


def failed(found: Sequence[Found], told: dict[str, Any], asked: Asked, target: str) -> Result:
    one = min(found, key=lambda one: one.order)
    counterexample = of_batch(one)
    command = reproduce(one.served.group, asked, target)
    return Result(
        **told, outcome="fail", message=one.message, counterexample=counterexample, reproduce=command,
        stopped="all batches served",
    )  # fmt: skip


def of_batch(found: Found) -> Counterexample:
    """The batch as a case that `cpbcg check` can ask too."""
    sequences = found.plan.sequences if found.plan else ()
    lengths = tuple(len(one.tokens) - one.prefix for one in sequences)
    batch = cases.Batch(lengths=lengths, prefixes=tuple(one.prefix for one in sequences))
    case = cases.ReplayCase(server=found.served.group.server, batches=(batch,))
    told = {"kind": "ReplayCase"} | dataclasses.asdict(case)
    return Counterexample(case=told, python=as_python(case), picture=picture(found, batch))


def picture(found: Found, batch: cases.Batch) -> str:
    """What each rank owned of it, beside what was captured."""
    seen = found.served.seen[0]
    bucket = dict(seen.chosen).get(found.number)
    rows = dict(seen.captured).get(bucket or 0)
    live = [len(rows) for rows in found.plan.rows] if found.plan else []
    lines = table([{"rank": rank, "live": own, "captured": rows} for rank, own in enumerate(live)])
    what = f"bucket {bucket}" if bucket else "eager" if bucket == 0 else "not run"
    prefixes = f", prefixes {','.join(map(str, batch.prefixes))}" if any(batch.prefixes) else ""
    told = f"lengths {','.join(map(str, batch.lengths))}{prefixes}: {batch.num_tokens} tokens, {what}"
    return "\n".join([told, *lines])


def reproduce(group: Group, asked: Asked, target: str) -> str:
    """The command that serves this group alone again."""
    usual = Asked()
    told: dict[str, Any] = {"target": target, "driver": group.driver, "cp-size": group.server.cp_size}
    told |= {"workload": group.workload} if not asked.trace else {"trace": asked.trace}
    told |= {"arithmetic": group.model.arithmetic.name, "batches": asked.batches, "seed": asked.seed}
    told |= {"buckets": ",".join(map(str, asked.buckets)), "context-length": asked.context_length}
    told |= {"dtype": str(asked.dtype).removeprefix("torch.") if asked.dtype != usual.dtype else ""}
    told |= {"plant": asked.plant, "inject": injected(asked), "timeout": asked.timeout_s if asked.inject else ""}
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in told.items() if value not in ("", None)]
    return " ".join(["python -m gpu_conformance", *words])


def injected(asked: Asked) -> str:
    inject = asked.inject
    return f"{inject.kind}:{inject.rank}@{inject.batch}" if inject else ""


def failures(done: Iterable[Served]) -> list[Served]:
    return [one for one in done if one.failure]
