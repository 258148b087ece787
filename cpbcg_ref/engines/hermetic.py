"""Execute a few modules of an engine for real; stand-ins answer for everything else that they import.

An engine such as an inference server imports a GPU stack that a laptop does not have. The decisions that this suite
checks live in a few leaf modules that need only torch. `Hermetic` executes those from source, under their true file
names, and gives each of them an `__import__` of its own: an import statement, at module level or inside a function,
finds the modules of its own tree, whatever other releases are loaded in the process.
"""

import builtins
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from inspect import isclass, isroutine
from pathlib import Path
from typing import Any

from cpbcg_ref.errors import TargetError

HOST = ("torch", "numpy", "typing_extensions")  # third-party packages that real modules may use for real


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

    __getitem__ = __setitem__ = __enter__ = __deepcopy__ = __or__ = __ror__ = _same
    __add__ = __radd__ = __sub__ = __mul__ = _same
    __bool__ = __contains__ = __exit__ = __instancecheck__ = __subclasscheck__ = __lt__ = __le__ = __gt__ = __ge__ = _no


class Hermetic:
    """One tree of modules, for example one release of an engine, with its own module table.

    root: the folder that contains the package's folder. real: dotted names that may be executed; a name without a file
    in this release is simply absent. replaced: modules that the real ones see instead of the standard ones (`time`).
    """

    def __init__(self, root: Path, package: str, real: Iterable[str], **replaced: Any) -> None:
        self.root, self.package = root, package
        self._files = {name: file for name in real if (file := self._file(name))}
        self._table: dict[str, Any] = dict(replaced)
        self._builtins = {**vars(builtins), "__import__": self._import}

    def has(self, name: str) -> bool:
        """True if `name` is listed as real and this tree has a file for it."""
        return name in self._files

    def load(self, name: str) -> Any:
        """The real module `name`, executed on the first call.

        Raises TargetError if the tree has no such module or if executing it fails.
        """
        if name not in self._files:
            raise missing(f"module {name}", self.root / name.replace(".", "/"))
        try:
            return self._module(name)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".split("\n")[0]
            raise TargetError(f"{self._files[name]} cannot be executed: {text}") from error

    def symbol(self, name: str, attribute: str) -> Any:
        """`attribute` (dotted for a method) of the real module `name`; TargetError if it is not there."""
        value = self.load(name)
        for part in attribute.split("."):
            if not hasattr(value, part):
                raise missing(attribute, self._files[name])
            value = getattr(value, part)
        return value

    def provide(self, name: str, **attributes: Any) -> None:
        """Set attributes of module `name`, a stand-in or a real one. What a real module imports with `from` at module
        level must be provided before that module is loaded."""
        for key, value in attributes.items():
            setattr(self._module(name), key, value)

    def replace_builtins(self, **names: Any) -> None:
        """What every module of this tree finds from now on where it would find a built-in name."""
        self._builtins.update(names)

    def _module(self, name: str) -> Any:
        """The module of this tree under `name`: real if listed, else a stand-in."""
        parent, _, leaf = name.rpartition(".")
        package = self._module(parent) if parent else None  # a real one may import `name` on its way
        if name not in self._table:
            self._table[name] = self._execute(name) if self.has(name) else StandIn(name)
            if package is not None:
                setattr(package, leaf, self._table[name])
        return self._table[name]

    def _execute(self, name: str) -> Any:
        file = self._files[name]
        spec: Any = importlib.util.spec_from_file_location(name, file)
        module = self._table[name] = importlib.util.module_from_spec(spec)
        vars(module)["__builtins__"] = self._builtins
        hidden = sys.modules.get(name)
        sys.modules[name] = module  # `dataclasses` looks there while it makes a class
        try:
            exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
        except BaseException:
            del self._table[name]
            raise
        finally:
            del sys.modules[name]
            if hidden is not None:
                sys.modules[name] = hidden
        return module

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """What an import statement in a real module calls instead of `builtins.__import__`. The tree answers for its
        package, for what is replaced, and for every third-party package but the host's."""
        if level:
            name = importlib.util.resolve_name("." * level + name, globals["__package__"])
        top = name.partition(".")[0]
        if top not in self._table and top != self.package and (top in HOST or top in sys.stdlib_module_names):
            return builtins.__import__(name, globals, locals, fromlist)
        module = self._module(name)
        for leaf in fromlist or ():
            below = f"{name}.{leaf}"
            # A submodule is imported on demand; of an executed package, also one that is not listed.
            if self.has(below) or (not hasattr(module, leaf) and self._file(below)):
                self._module(below)
        return module if fromlist else self._table[top]

    def _file(self, name: str) -> Path | None:
        path = self.root.joinpath(*name.split("."))
        files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)


def missing(what: str, file: Path) -> TargetError:
    return TargetError(f"{what} is missing in {file}: this release has moved it or never had it")
