"""A value that survives whatever a module does with an import that is not there."""

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
    """Module, decorator, base class, context manager, type: enough to get through an import.

    It is falsy, empty and equal only to itself. It has no number in it: code that wants one from it fails instead of
    computing with a zero that nobody asked for.

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

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        alone = all(isinstance(base, StandIn) for base in bases)
        return (AbsentBase,) if alone and self is bases[0] else ()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def _same(self, *operands: Any) -> "StandIn":
        return self

    def _no(self, *operands: Any) -> bool:
        return False

    def _nothing(self, *operands: Any) -> None:
        return None

    __getitem__ = __enter__ = __deepcopy__ = __or__ = __ror__ = __add__ = __radd__ = __sub__ = __mul__ = _same
    __bool__ = __contains__ = __instancecheck__ = __subclasscheck__ = __lt__ = __le__ = __gt__ = __ge__ = _no
    __setitem__ = __exit__ = _nothing
