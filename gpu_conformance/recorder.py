"""A CUDA graph without CUDA: operations recorded once and replayed into the same addresses.

Outputs live in one arena, so that whatever still reads what has died reads foreign numbers. Replay runs the same
operations on the same addresses; Python does not run again. So nothing in a capture may depend on numbers that Python
has read, or read a tensor that a later batch does not fill: both are refused.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from gpu_conformance.arena import Arena

Tensor = torch.Tensor
HOST = frozenset({"tolist", "numpy", "item", "__array__", "__bool__", "__int__", "__float__", "__index__"})
REFUSED = {
    torch.Tag.data_dependent_output: "hands a number to Python, which a replay would not read again",
    torch.Tag.dynamic_output_shape: "has a shape that depends on the data",
    torch.Tag.nondeterministic_seeded: "would draw other numbers at each replay",
}


class NotCapturable(RuntimeError):
    """What was captured would not mean the same when it is replayed."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs what happens inside it, with every new tensor in the arena, and keeps the list of operations.

    readable: inputs and constants. An operation reads these and what was made before it, nothing else.
    """

    def __init__(self, arena: Arena, readable: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.arena = arena
        self.known = list(map(arena.extent, readable))
        self.steps: list[Callable[[], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or every process imports torch._dynamo: a second

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, Tensor)]
        self.check(function, args, given)
        outputs, structure = tree_flatten(function(*args, **kwargs))
        if all(not isinstance(out, Tensor) or owner(out, given) is not None for out in outputs):
            if function._schema.is_mutable:
                self.record(function, args, kwargs, [])
            keep_blocks(outputs, given)
        else:
            outputs = [self.arena.holding(out) if isinstance(out, Tensor) else out for out in outputs]
            self.known += [self.arena.extent(out) for out in outputs if isinstance(out, Tensor)]
            self.record(function, args, kwargs, [raw(out) for out in outputs])
        return tree_unflatten(outputs, structure)

    def check(self, function: Any, args: Any, given: list[Tensor]) -> None:
        by_index = function._overloadpacket is torch.ops.aten.index
        by_mask = by_index and any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
        for tag in set(function.tags) & set(REFUSED):
            if not by_index or by_mask:
                raise NotCapturable(f"{function} {REFUSED[tag]}")
        for one in given:
            if one.numel() and not any(start <= one.data_ptr() < end for start, end in self.known):
                told = f"a {tuple(one.shape)} {one.dtype} tensor"
                raise NotCapturable(
                    f"{function} reads {told} that is no input, no constant and not made in the capture"
                )

    def record(self, function: Any, args: Any, kwargs: Any, outputs: list[Any]) -> None:
        """Keep addresses, not tensors: what the caller drops is dead although a graph will write it again."""
        args, kwargs = tree_map_only(Tensor, raw, (args, kwargs))
        form = writing_form(function) if outputs else (function, ())  # in place: it is its own writing form
        if function is torch.ops.aten._to_copy.default:
            self.steps.append(partial(outputs[0].copy_, args[0]))
        elif form and not self.overlap(outputs, (args, kwargs)):
            self.steps.append(partial(form[0], *args, **kwargs, **dict(zip(form[1], outputs, strict=True))))
        else:
            self.steps.append(partial(copied, outputs, partial(function, *args, **kwargs)))

    def overlap(self, outputs: list[Any], inputs: Any) -> bool:
        """Does a block that is written stand where one is read: it was given away while a weak handle was left."""
        reads = [self.arena.extent(one) for one in tree_flatten(inputs)[0] if isinstance(one, Tensor)]
        writes = map(self.arena.extent, outputs)
        return any(start < end_of and start_of < end for start, end in writes for start_of, end_of in reads)


class HostReads(TorchFunctionMode):
    """Refuses what hands numbers to Python without an operation that a recorder would see."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        sizes = [*args[1:2], *(kwargs or {}).values()] if name in ("split", "split_with_sizes") else []
        if name in HOST or any(isinstance(size, list | tuple) for size in sizes):
            raise NotCapturable(f"{name}{'(list)' if sizes else ''} in a capture: a replay would not read again")
        return function(*args, **(kwargs or {}))


@contextmanager
def recording(arena: Arena, readable: Iterable[Tensor] = ()) -> Iterator[list[Callable[[], Any]]]:
    """The operations of what happens inside, to be called one after the other. Raises NotCapturable."""
    with HostReads(), Recorder(arena, readable) as recorder:
        yield recorder.steps


@cache
def writing_form(function: Any) -> tuple[Any, list[str]] | None:
    """The overload that writes where it is told, and its names for that."""
    wanted = [(one.name, str(one.type)) for one in function._schema.arguments]
    for name in function._overloadpacket.overloads():
        form = getattr(function._overloadpacket, name)
        rest = [(one.name, str(one.type)) for one in form._schema.arguments if not one.is_out]
        written = [one.name for one in form._schema.arguments if one.is_out]
        if rest == wanted and len(written) == len(function._schema.returns):
            return form, written
    return None


def copied(outputs: list[Any], function: Callable[[], Any]) -> None:
    for kept, new in zip(outputs, tree_flatten(function())[0], strict=True):
        kept.copy_(new)


def owner(out: Tensor, given: list[Tensor]) -> Tensor | None:
    """Which of these an output looks into; of several in the arena the first, as operations that give views do."""
    storage = out.untyped_storage().data_ptr()
    return next((one for one in given if one is out or one.untyped_storage().data_ptr() == storage), None)


def keep_blocks(outputs: list[Any], given: list[Tensor]) -> None:
    """A view holds the block that it looks into."""
    for out in outputs:
        if isinstance(out, Tensor) and not any(out is one for one in given):
            base = owner(out, given)
            if block := getattr(base, "block", None):
                out.block = block  # type: ignore[attr-defined]


def raw(tensor: Tensor) -> Tensor:
    """The same memory under another handle, which does not count as holding the block."""
    return tensor.detach() if hasattr(tensor, "block") else tensor
