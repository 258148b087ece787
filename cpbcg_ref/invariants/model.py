"""What an invariant is. Data and a pure function: no engine is called here and no case is made here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MUST = "MUST"
SHOULD = "SHOULD"

Check = Callable[[Any, Any, Any], str | None]
Witness = Callable[[Any, Any], bool]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One way to put an invariant to an engine.

    family: which cases are asked, a key of `cpbcg_ref.asking.FAMILIES`. check(case, seen, contract) gives one sentence
    that carries the numbers of the violation, or None. needs: capabilities beyond the family's. witnesses: named
    interesting cases that must have been generated, as witness(case, seen) -> bool; a part whose witnesses never came
    up is `unwitnessed`.
    """

    family: str
    check: Check
    needs: tuple[str, ...] = ()
    witnesses: Mapping[str, Witness] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """One id of the specification. sources: the public bugs behind it, such as "sglang#33906"."""

    id: str
    level: str
    statement: str
    parts: tuple[Part, ...]
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.level in (MUST, SHOULD), self.level
        assert self.parts, self.id
        assert self.statement, self.id
