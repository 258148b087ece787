"""Judge one case by one invariant: a failure that a test pins with `@example`, or that was saved and is replayed.

import pytest
from hypothesis import example, given
from cpbcg_ref.cases import *
from cpbcg_ref.checking.single import violation
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.strategies import cases_for

ENGINE = resolve("sglang==0.5.18")

@given(case=cases_for("replay", ENGINE.contract))
@example(case=ReplayCase(...))  # the line that a failure of `cpbcg check` offers
def test_no_admitted_batch_overflows_its_bucket(case):
    assert violation(ENGINE, "capacity.no-overflow", case) is None
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.answering import ask
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.errors import CpbcgError, InvalidInput
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Part


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What one case showed: the violation in one sentence, None if there is none, and the engine's answers."""

    sentence: str | None
    seen: Any


def violation(engine: Any, invariant_id: str, case: Any) -> str | None:
    """How this engine violates the invariant on this case, in one sentence; None if it does not.

    Raises what `judge_case` raises.

    >>> from cpbcg_ref.cases import Batch, LayoutCase
    >>> from cpbcg_ref.engines.reference import Reference
    >>> case = LayoutCase(cp_size=4, batch=Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0)))
    >>> print(violation(Reference(), "capacity.required", case))
    None
    """
    return judge_case(engine, invariant_id, case).sentence


def judge_case(engine: Any, invariant_id: str, case: Any) -> Judged:
    """Asks every part of the invariant whose family asks this kind of case; the first violation counts.

    Raises InvalidInput for an unknown id or a kind of case that the invariant is not asked with, CpbcgError where this
    engine cannot be asked or cannot capture the case's ladder; an exception of the adapter goes up.
    """
    parts, seen = askable(engine, invariant_id, case), None
    for family in dict.fromkeys(part.family for part in parts):
        try:
            seen = ask(engine, family, case)
        except CaptureFailed as problem:
            raise CpbcgError(f"the engine cannot capture the ladder of this case: {problem}") from problem
        for part in parts:
            if part.family == family and (sentence := part.check(case, seen, engine.contract)):
                return Judged(sentence=sentence, seen=seen)
    return Judged(sentence=None, seen=seen)


def askable(engine: Any, invariant_id: str, case: Any) -> list[Part]:
    """The parts that ask this kind of case and that this engine can be asked: at least one."""
    if invariant_id not in REGISTRY:
        near = get_close_matches(invariant_id, REGISTRY, n=1)
        hint = f"did you mean {near[0]}?" if near else "`cpbcg invariants` lists them"
        raise InvalidInput(f"no invariant is called {invariant_id!r}: {hint}")
    parts, kind = REGISTRY[invariant_id].parts, type(case)
    if not (asked := [part for part in parts if FAMILIES[part.family].case is kind]):
        kinds = " or ".join(sorted({FAMILIES[part.family].case.__name__ for part in parts}))
        raise InvalidInput(f"the case is a {kind.__name__}: {invariant_id} is asked with a {kinds}")
    reasons = [why_not(engine, part) for part in asked]
    if all(reasons):
        raise CpbcgError(f"{engine.name} {engine.version} cannot be asked {invariant_id}: {reasons[0]}")
    return [part for part, reason in zip(asked, reasons, strict=True) if not reason]


def why_not(engine: Any, part: Part) -> str:
    """Why the engine cannot be asked about this part, "" if it can."""
    lacking = next(filter(None, (missing(engine, capability) for capability in capabilities(part))), "")
    return lacking or part.excluded(engine.contract)


def capabilities(part: Part) -> tuple[str, ...]:
    """What an engine needs to be asked about this part."""
    return (FAMILIES[part.family].capability, *part.needs)
