"""Prove what can be proved about a target: the library's theorems, and those about the target's own functions."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cpbcg_ref.checking.executed import recording
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.targets import REFERENCES
from cpbcg_ref.proving import capacity, layout, metadata, negotiation, required, selector
from cpbcg_ref.proving.model import Proved, Theorem, prove
from cpbcg_ref.proving.targets import both

LIBRARY = (*layout.THEOREMS, *capacity.THEOREMS, *negotiation.THEOREMS)
Engines = tuple[Any, Any]  # for integers without a value, and as it is
_engines: dict[str, Engines] = {}  # by target: a forked worker finds them, a spawned one loads them again


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """Every theorem about a target, in order. executed: "file:qualified.name" of the target's functions that ran."""

    target: str
    engine: str
    version: str
    proved: tuple[Proved, ...]
    executed: tuple[str, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """First that applies: 1 a theorem does not hold, 2 one is undecided or its control was not refuted, 0."""
        asked = [one for one in self.proved if not one.skipped]
        if any(one.refuted for one in asked):
            return 1
        return 0 if all(one.proved and one.control_refuted for one in asked) else 2


def theorems(target: str, engines: Engines) -> list[Theorem]:
    """About the engine's own functions, and for the reference about its layout and its negotiation too."""
    own = [*required.theorems(*engines), *selector.theorems(*engines)]
    if metadata.can_be_asked(engines[0]):
        own = [*metadata.theorems(*engines), *own]
    return [*LIBRARY, *own] if target in REFERENCES else own


def prove_all(
    target: str,
    *,
    names: Callable[[str], bool] = lambda name: True,
    workers: int | None = None,
    progress: Callable[[str, int, int], None] = lambda engine, done, total: None,
    tell: Callable[[str], None] | None = None,
    allow_unpinned: bool = False,
) -> Proofs:
    """Every theorem about the target whose name is wanted, on all cores.

    `tell` receives lines for people while the target is fetched, `progress` the engine and how many proofs are done.
    Raises TargetError if the target cannot be obtained.
    """
    began, engines = time.perf_counter(), loaded(target, allow_unpinned=allow_unpinned, progress=tell)
    wanted, engine = [one for one in theorems(target, engines) if names(one.name)], engines[1]
    asked = [one.name for one in wanted if not (one.needs and missing(engine, one.needs))]
    done: dict[str, tuple[Proved, set[str]]] = {}
    with ProcessPoolExecutor(min(workers or os.cpu_count() or 1, max(1, len(asked)))) as pool:
        jobs = [pool.submit(prove_one, target, name) for name in sorted(asked, key=longest_first)]
        for count, job in enumerate(as_completed(jobs), start=1):
            name, *found = job.result()
            done[name] = tuple(found)  # type: ignore[assignment]
            progress(f"{engine.name} {engine.version}", count, len(jobs))
    came = tuple(outcome(one, done, engine) for one in wanted)
    ran = set().union(*[functions for _, functions in done.values()])
    told = {"target": target, "engine": engine.name, "version": engine.version}
    return Proofs(**told, proved=came, executed=tuple(sorted(ran)), seconds=time.perf_counter() - began)


def loaded(target: str, **how: Any) -> Engines:
    if target not in _engines:
        _engines[target] = both(target, **how)
    return _engines[target]


def longest_first(name: str) -> bool:
    """The last worker should not wait for a long proof."""
    return not name.endswith(("monotone", "agrees", "passes", "eager"))


def outcome(theorem: Theorem, done: dict[str, tuple[Proved, set[str]]], engine: Any) -> Proved:
    if theorem.name not in done:
        return Proved(theorem=theorem, skipped=missing(engine, theorem.needs) or "not asked")
    return replace(done[theorem.name][0], theorem=theorem)


def prove_one(target: str, name: str) -> tuple[str, Proved, set[str]]:
    """In a worker. The theorem itself holds functions of the engine and stays there."""
    engines = loaded(target, allow_unpinned=True)
    theorem = next(one for one in theorems(target, engines) if one.name == name)
    ran: set[str] = set()
    if theorem.needs:  # one way, without a value, and the control, with one
        with recording(engines[0], ran), suppress(Exception):
            next(iter(theorem.claim()), None)
    found = prove(replace(theorem, replay=recorded(engines[1], theorem.replay, ran)))
    return name, replace(found, theorem=replace(theorem, claim=tuple, control=tuple, replay=str, confirm=str)), ran


def recorded(engine: Any, replay: Callable[[dict[str, int]], str], ran: set[str]) -> Callable[[dict[str, int]], str]:
    def recorded_replay(model: dict[str, int]) -> str:
        with recording(engine, ran):
            return replay(model)

    return recorded_replay
