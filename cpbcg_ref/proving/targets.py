"""Engines and the library, made ready to be run on integers without a value."""

import sys
from functools import cache
from types import ModuleType
from typing import Any

import cpbcg_ref
from cpbcg_ref.engines.contract import root_of
from cpbcg_ref.engines.reference import CORE, Reference
from cpbcg_ref.engines.targets import REFERENCES, resolve
from cpbcg_ref.faults.edited import edited
from cpbcg_ref.proving.symbolic import HELPERS


@cache
def symbolic_library() -> Any:
    """A copy of the core that finds the helpers instead of the built-in functions."""
    library = edited("cpbcg_symbolic", ())
    for name in CORE:
        vars(sys.modules[f"cpbcg_symbolic.{name}"]).update(HELPERS)
    return library


class SymbolicReference(Reference):
    @property
    def library(self) -> Any:
        return symbolic_library()


def symbolic_engine(target: str, **how: Any) -> Any:
    """The engine of a target, in whose own modules the helpers stand instead of the built-in functions.

    Such an engine is for proofs: it is slow on numbers that have a value. Raises TargetError as `resolve` does.
    """
    if target in REFERENCES:
        return SymbolicReference()
    engine = resolve(target, **how)
    if getattr(engine, "library", None) is cpbcg_ref:
        engine.library = symbolic_library()
        return engine
    if tree := getattr(getattr(engine, "process", None), "tree", None):
        tree.replace_builtins(**HELPERS)
    for module in own_modules(engine):
        vars(module).update(HELPERS)
    return engine


def own_modules(engine: Any) -> list[ModuleType]:
    """Loaded modules of the engine's copy of the library, or below the engine's roots."""
    if library := getattr(engine, "library", None):
        return [sys.modules[f"{library.__name__}.{name}"] for name in CORE]
    files = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return [module for module, file in files if file and root_of(engine, file)]
