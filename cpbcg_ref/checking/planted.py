"""Defects in replayed data, planted in the conformance layer: trials like those of the faults, if torch is installed.

A plant is no engine: batches are replayed by ranks in step, one of whose parts is wrong. What is counted are batches.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from cpbcg_ref.checking.hunting import Hunt, Trial

LAYER, CONTROL, FAMILY = "gpu_conformance", "ranks in step", "data"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """As a `Fault`. Batches are not shrunk: there is no smallest one."""

    key: str
    wrong: str
    source: str
    expected: tuple[str, ...]
    smallest: None = None


def unavailable() -> str:
    """Why nothing can be planted here; "" if it can."""
    lacking = [name for name in ("torch", LAYER) if find_spec(name) is None]
    install = ": pip install 'cpbcg[torch]'" if "torch" in lacking else ""
    return f"{' and '.join(lacking)} cannot be imported{install}" if lacking else ""


@cache
def catalogue() -> dict[str, Planted]:
    """By key; empty where nothing can be planted. Imports torch."""
    if unavailable():
        return {}
    return {
        key: Planted(key=key, wrong=one.what, source=one.source, expected=one.caught_by)
        for key, one in layer("plants").PLANTS.items()
    }


def layer(module: str) -> Any:
    """The one place from which the suite reaches what stands above it, at run time only."""
    return import_module(f"{LAYER}.{module}")


def hunt(key: str, number: int) -> Trial:
    """Batches from the seed `number` until each id that must catch this plant has."""
    return trial(key, number, catalogue()[key].expected)


def control(number: int) -> Trial:
    """All batches of this seed, and nothing planted: whatever is found is a false alarm."""
    return trial(CONTROL, number, ())


def trial(key: str, number: int, expected: tuple[str, ...]) -> Trial:
    hunted = layer("trials").hunt(key if expected else "", number)
    spent = {"examples": hunted.batches, "seconds": hunted.seconds}
    hunts = tuple(hunt_of(name, hunted.found.get(name), spent) for name in expected or hunted.found)
    return Trial(key=key, seed=number, hunts=hunts, asked=hunted.batches, seconds=hunted.seconds, error=hunted.error)


def hunt_of(name: str, found: Any, spent: dict[str, Any]) -> Hunt:
    """found: the finding and the seconds until then. One that capturing shows takes no batch."""
    if found is None:
        return Hunt(id=name, **spent)
    finding, seconds = found
    return Hunt(id=name, examples=finding.batch + 1, seconds=seconds, family=FAMILY, found=finding.sentence)
