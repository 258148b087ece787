"""What a seeded fault is: a deliberately wrong engine, and the invariants that must catch it.

A fault is written down in one of two ways: as an edit of the core's text (the mistake itself, in the place where it was
made), or as a class over `Reference` (one method wrong). A variant is an engine that is different and right.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults.edited import Edit, edited
from cpbcg_ref.invariants import REGISTRY


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One wrong engine.

    wrong: what it gets wrong, one sentence. source: the bug, "" for a generic mistake. expected: ids, each of which
    must catch it. smallest: size of the smallest case that breaks the first of them (`cpbcg_ref.checking.size`).
    """

    key: str
    wrong: str
    source: str
    expected: tuple[str, ...]
    smallest: int
    edits: tuple[Edit, ...] = ()
    engine_type: Callable[[], Any] = Reference

    def __post_init__(self) -> None:
        assert self.wrong, f"{self.key}: say what is wrong"
        assert self.smallest >= 1, f"{self.key}: no case is smaller than 1"
        assert self.expected, f"{self.key}: name the ids that must catch it"
        assert set(self.expected) <= set(REGISTRY), f"{self.key}: {set(self.expected) - set(REGISTRY)} unknown"

    @property
    def engine(self) -> Any:
        """A fresh one each time: what an engine remembers must not help to catch it twice."""
        return built(self.key, self.edits, self.engine_type)

    @property
    def base(self) -> Callable[[], Any]:
        """The right engine that this one was made from: a variant, or else one from outside this folder."""
        right = {variant.engine_type for variant in VARIANTS.values()}
        itself_is_wrong = not self.edits
        above = getattr(self.engine_type, "__mro__", (self.engine_type, Reference))[itself_is_wrong:]
        return next(one for one in above if one in right or not one.__module__.startswith(HERE))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An engine that differs and is right: nothing may flag it. why: what makes it right, one sentence."""

    key: str
    why: str
    engine_type: Callable[[], Any] = Reference

    @property
    def engine(self) -> Any:
        return built(self.key, (), self.engine_type)


HERE = __name__.rpartition(".")[0] + "."
FAULTS: dict[str, Fault] = {}
VARIANTS: dict[str, Variant] = {}


def built(key: str, edits: tuple[Edit, ...], engine_type: Callable[[], Any]) -> Any:
    engine = engine_type()
    engine.name = key
    if edits:
        engine.library = edited("cpbcg_" + key.replace("-", "_"), edits)
    return engine


def edit(key: str, wrong: str, *edits: Edit, over: Callable[[], Any] = Reference, **named: Any) -> None:
    """Register a fault made by edits of the core. named: as for `fault`."""
    add(key, wrong, edits=edits, engine_type=over, **named)


def fault(key: str, *, must: str, smallest: int, source: str = "") -> Callable[[type], type]:
    """Register an engine class as a fault; the first paragraph of its docstring says what is wrong.

    must: the expected ids, separated by spaces.
    """

    def register(engine_type: type) -> type:
        add(key, sentence(engine_type), must=must, smallest=smallest, source=source, engine_type=engine_type)
        return engine_type

    return register


def add(key: str, wrong: str, *, must: str, source: str = "", **told: Any) -> None:
    assert key not in FAULTS, f"two faults are called {key}"
    FAULTS[key] = Fault(key=key, wrong=wrong, source=source, expected=tuple(must.split()), **told)


def public(source: str) -> bool:
    """Is it an issue of a public tracker, as sglang#33906; a finding or a place in an engine's code is a source too.

    >>> public("sglang#33906"), public("vllm:CudagraphDispatcher"), public("")
    (True, False, False)
    """
    return "#" in source


def variant(key: str) -> Callable[[type], type]:
    """Register an engine class as a variant; the first paragraph of its docstring says why it is right."""

    def register(engine_type: type) -> type:
        VARIANTS[key] = Variant(key=key, why=sentence(engine_type), engine_type=engine_type)
        return engine_type

    return register


def sentence(documented: type) -> str:
    return " ".join((documented.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")
