"""Engines and the library, made ready to be run on integers without a value."""

import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import cpbcg_ref
from cpbcg_ref.engines.contract import root_of
from cpbcg_ref.engines.reference import CORE, Reference
from cpbcg_ref.engines.targets import REFERENCES, resolve
from cpbcg_ref.faults import FAULTS
from cpbcg_ref.faults.edited import Edit, edited
from cpbcg_ref.proving.symbolic import HELPERS


@cache
def symbolic_library() -> Any:
    """A copy of the core that finds the helpers instead of the built-in functions."""
    return with_helpers("cpbcg_symbolic", ())


def with_helpers(name: str, edits: Sequence[Edit]) -> Any:
    """Such a copy with edits, for an engine that is wrong on purpose."""
    library = edited(name, edits)
    for module in CORE:
        vars(sys.modules[f"{name}.{module}"]).update(HELPERS)
    return library


class SymbolicReference(Reference):
    @property
    def library(self) -> Any:
        return symbolic_library()


def both(target: str, **how: Any) -> tuple[Any, Any]:
    """The engine of a target in whose own modules the helpers stand instead of the built-in functions, and the same
    engine as it is. An adapter of a stranger's is one module: there both are the same.

    Raises TargetError as `resolve` does.
    """
    plain = resolve(target, **how)
    return symbolic(target, **how), plain


def symbolic(target: str, **how: Any) -> Any:
    if target in REFERENCES:
        return SymbolicReference()
    engine, (kind, _, key) = resolve(target, **how), target.partition(":")
    if getattr(engine, "library", None) is cpbcg_ref:
        engine.library = symbolic_library()
    elif kind == "fault" and key in FAULTS and FAULTS[key].edits:
        engine.library = with_helpers(f"cpbcg_symbolic_{key.replace('-', '_')}", FAULTS[key].edits)
    elif tree := getattr(getattr(engine, "process", None), "tree", None):
        tree.replace_builtins(**HELPERS)
    else:
        for module in own_modules(engine):
            vars(module).update(HELPERS)
    return engine


def own_modules(engine: Any) -> list[ModuleType]:
    """Loaded modules below the engine's roots."""
    files = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return [module for module, file in files if file and root_of(engine, file)]
