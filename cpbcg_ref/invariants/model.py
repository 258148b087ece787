"""What an invariant is, and how a checker becomes one. No engine is called here and no case is made here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, TypeVar

from cpbcg_ref.engines.contract import Contract

MUST, SHOULD = "MUST", "SHOULD"
Sentences = Iterable[str]  # one per violation, with its numbers
Judge = Callable[..., Sentences]  # of (case, seen, contract), or of the part of them that one judgement needs
Witness = Callable[..., bool]  # of (case, seen): did this interesting case come up
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Part:
    """One way to put an invariant to an engine.

    family: which cases are asked, a key of `cpbcg_ref.asking.FAMILIES`. check(case, seen, contract): the first
    violation in one sentence, or None. needs: capabilities beyond the family's. excluded(contract): why an engine with
    this contract is not asked, "" if it is. witnesses: interesting cases; those that the contract allows are demanded,
    and if one was not generated the part is `unwitnessed`. once: it is about asking twice, so one sighting is enough
    even if the engine answers as it should when asked again.
    """

    family: str
    check: Callable[[Any, Any, Any], str | None]
    needs: tuple[str, ...]
    excluded: Callable[[Contract], str]
    witnesses: Mapping[str, Witness]
    once: bool = False

    def demanded(self, contract: Contract) -> list[str]:
        possible = ((name, getattr(met, "only_if", None)) for name, met in self.witnesses.items())
        return [name for name, only_if in possible if only_if is None or only_if(contract)]


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """One id of the specification. sources: the public bugs behind it, such as "sglang#33906"."""

    id: str
    level: str
    statement: str
    sources: tuple[str, ...]
    parts: tuple[Part, ...] = ()


def not_excluded(contract: Contract) -> str:
    return ""


def only_if(possible: Callable[[Contract], bool]) -> Callable[[Witness], Witness]:
    """For a witness that engines with some contracts can never meet."""

    def mark(witness: Witness) -> Witness:
        witness.only_if = possible  # type: ignore[attr-defined]
        return witness

    return mark


REGISTERED: dict[str, Invariant] = {}


def invariant(
    id: str,
    *witnesses: Witness,
    family: str,
    each: Callable[[Any], Judge] | None = None,
    some: Callable[[Any], Witness] | None = None,
    needs: tuple[str, ...] = (),
    excluded: Callable[[Contract], str] = not_excluded,
    once: bool = False,
    level: str = MUST,
    sources: str = "",
    **named: Witness,
) -> Callable[[Function], Function]:
    """Register a checker, which states its invariant in its docstring's first paragraph; or a further part of an id.

    A witness is called what its function or its keyword is. `each` and `some` make a judge and a witness of whole cases
    out of functions of less, such as one pass; a witness with a keyword is one of whole cases already. A bare number
    among the sources is an issue or pull request of SGLang.
    """

    def register(function: Function) -> Function:
        judge = each(function) if each else function
        whole = [(one.__name__, update_wrapper(some(one), one) if some else one) for one in witnesses]
        spoken = {name.replace("_", " "): witness for name, witness in (*whole, *named.items())}

        def check(case: Any, seen: Any, contract: Any) -> str | None:
            return next(iter(judge(case, seen, contract)), None)

        part = Part(family=family, check=check, needs=needs, excluded=excluded, witnesses=spoken, once=once)
        statement = " ".join((function.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")
        bugs = tuple(f"sglang#{bug}" if bug.isdigit() else bug for bug in sources.split())
        one = REGISTERED.get(id) or Invariant(id=id, level=level, statement=statement, sources=bugs)
        told = tuple(dict.fromkeys((*one.sources, *bugs)))
        REGISTERED[id] = replace(one, parts=(*one.parts, part), sources=told)
        return function

    return register
