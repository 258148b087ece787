"""What adapters supply to the code of an engine: process state by name, functions that answer, tensors of numbers."""

from collections.abc import Callable, Iterable
from typing import Any


class Bag:
    """Process state by name. A name that is missing here is the adapter's fault, never the engine's answer."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the engine asks its process for {name!r}, which this adapter does not supply")


def always(value: Any) -> Callable[..., Any]:
    """A function that answers `value`, whatever it is asked."""
    return lambda *args, **options: value


def ints(values: Iterable[int]) -> Any:
    import torch

    return torch.tensor(list(values), dtype=torch.int64)
