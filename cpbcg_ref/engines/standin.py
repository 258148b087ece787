"""A value that survives whatever a module does with an import that is not there.

A stand-in is falsy, empty and equal only to itself; it decorates by doing nothing, and a class may inherit from it. It
has no number in it: code that wants one from it fails instead of computing with a zero that nobody asked for.
"""

from collections.abc import Iterator
from inspect import isclass, isroutine
from typing import Any


class AbsentBase:
    """What a class inherits from instead of a class that is not there. A method of the absent one is missing loudly."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()

    def __init__(self, *args: Any, **options: Any) -> None:
        pass


class StandIn:
    """Callable, decorator, base class, context manager, empty iterable, type: enough to get through an import.

    >>> is_hip = StandIn("engine.utils.is_hip")
    >>> bool(is_hip()), list(is_hip.names[0]), is_hip | None
    (False, [], <stand-in engine.utils.is_hip>)
    """

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __repr__(self) -> str:
        return f"<stand-in {self.__name__}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # no protocol is faked that is not written out here
            raise AttributeError(name)
        value = StandIn(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and not options and (isroutine(args[0]) or isclass(args[0])):
            return args[0]  # a decorator
        return StandIn(f"{self.__name__}()")

    def __getitem__(self, key: Any) -> "StandIn":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        others = [base for base in bases if not isinstance(base, StandIn)]
        first = next(base for base in bases if isinstance(base, StandIn))
        return (AbsentBase,) if self is first and not _inherits_absent(others) else ()

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, item: Any) -> bool:
        return False

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def _same(self, *other: Any) -> "StandIn":
        return self

    def _no(self, other: Any) -> bool:
        return False

    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __sub__ = __rsub__ = _same
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __neg__ = __invert__ = (
        __deepcopy__
    ) = _same
    __lt__ = __le__ = __gt__ = __ge__ = _no


def _inherits_absent(bases: list[Any]) -> bool:
    return any(isclass(base) and issubclass(base, AbsentBase) for base in bases)
