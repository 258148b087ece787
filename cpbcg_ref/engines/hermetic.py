"""Execute a few modules of an engine for real; stand-ins answer for everything else that they import.

An engine such as an inference server imports a GPU stack that a laptop does not have. The decisions that this suite
checks live in a few leaf modules that need only torch. `Hermetic` executes those from source, under their true file
names, and gives each of them an `__import__` of its own: an import statement, at module level or inside a function,
finds the modules of its own tree, whatever other releases are loaded in the process. Nothing stays in `sys.modules`.
"""

import builtins
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from cpbcg_ref.engines.standin import StandIn
from cpbcg_ref.errors import TargetError

HOST = ("torch", "numpy", "typing_extensions")  # third-party packages that real modules may use for real
_SWAP = threading.RLock()  # one tree at a time may show its modules in sys.modules
_SHOWN: list["Hermetic"] = []  # the trees shown there now, innermost last


class _StandInModule(ModuleType):
    """A module of which every attribute is a stand-in, unless it was provided or imported."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: anything may be imported below it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = StandIn(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Hermetic:
    """One tree of modules, for example one release of an engine, with its own module table.

    root: the folder that contains the package's folder. real: dotted names that may be executed; a name without a file
    in this release is simply absent. replaced: modules that the real ones see instead of the standard ones (`time`).
    supported: the range of releases to name in errors, "0.5.16 to 0.5.23".
    """

    def __init__(
        self,
        root: Path | str,
        package: str,
        real: Iterable[str],
        *,
        replaced: Mapping[str, Any] | None = None,
        supported: str = "",
    ) -> None:
        self.root, self.package, self.supported = Path(root), package, supported
        self._files = {name: file for name in real if (file := self._file(name))}
        self._table: dict[str, Any] = dict(replaced or {})
        self._replaced = frozenset(self._table)
        self._builtins = {**vars(builtins), "__import__": self._import}

    def has(self, name: str) -> bool:
        """True if `name` is listed as real and this tree has a file for it."""
        return name in self._files

    def load(self, name: str) -> Any:
        """The real module `name`, executed on the first call.

        Raises TargetError if the tree has no such module or if executing it fails.
        """
        if name not in self._files:
            raise TargetError(self._missing(f"module {name}", self.root / name.replace(".", "/")))
        try:
            with _SWAP:  # never half of a module that another thread is executing
                return self.module(name)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".split("\n")[0]
            raise TargetError(f"{self._files[name]} cannot be executed: {text}") from error

    def symbol(self, name: str, attribute: str) -> Any:
        """`attribute` (dotted for a method) of the real module `name`; TargetError if it is not there."""
        value = self.load(name)
        for part in attribute.split("."):
            if not hasattr(value, part):
                raise TargetError(self._missing(attribute, self._files[name]))
            value = getattr(value, part)
        return value

    def provide(self, name: str, **attributes: Any) -> None:
        """Set attributes of module `name`, a stand-in or a real one. What a real module imports with `from` at module
        level must be provided before that module is loaded."""
        module = self.module(name)
        for key, value in attributes.items():
            setattr(module, key, value)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Show this tree's modules in `sys.modules`; other trees wait. Needed only by code that looks there itself
        (dataclasses at class creation, pickle): import statements of the real modules find their tree without it."""
        with _SWAP:
            if _SHOWN and _SHOWN[-1] is self:
                yield
                return
            saved = _take_out(self._owns)
            sys.modules.update({name: module for name, module in self._table.items() if self._owns(name)})
            _SHOWN.append(self)
            try:
                yield
            finally:
                _SHOWN.pop()
                _take_out(self._owns)
                sys.modules.update(saved)

    def module(self, name: str) -> Any:
        """The module of this tree under `name`: real if listed, else a stand-in."""
        if name in self._table:
            return self._table[name]
        parent, _, leaf = name.rpartition(".")
        if parent:
            self.module(parent)
            if name in self._table:  # the parent, a real package, imported it
                return self._table[name]
        module = self._execute(name) if name in self._files else self._add(name, _StandInModule(name))
        if parent:
            setattr(self._table[parent], leaf, module)
        return module

    def _execute(self, name: str) -> Any:
        with self.installed():
            if name in self._table:  # another thread was faster
                return self._table[name]
            module = self._add(name, self._empty(name))
            try:
                source = self._files[name].read_bytes()
                exec(compile(source, str(self._files[name]), "exec", dont_inherit=True), vars(module))
            except BaseException:
                del self._table[name]
                sys.modules.pop(name, None)
                raise
        return module

    def _empty(self, name: str) -> ModuleType:
        file, module = self._files[name], ModuleType(name)
        is_package = file.name == "__init__.py"
        module.__spec__ = ModuleSpec(name, None, origin=str(file), is_package=is_package)
        module.__file__ = str(file)
        module.__package__ = name if is_package else name.rpartition(".")[0]
        if is_package:
            module.__path__ = [str(file.parent)]
        vars(module)["__builtins__"] = self._builtins
        return module

    def _add(self, name: str, module: ModuleType) -> ModuleType:
        module = self._table.setdefault(name, module)
        if _SHOWN and _SHOWN[-1] is self and self._owns(name):
            sys.modules[name] = module
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Iterable[str] | None = (),
        level: int = 0,
    ) -> Any:
        """What an import statement in a real module calls instead of `builtins.__import__`."""
        if level:
            name = importlib.util.resolve_name("." * level + name, str((globals or {}).get("__package__")))
        if not self._answers(name):
            return builtins.__import__(name, globals, locals, tuple(fromlist or ()), 0)
        module = self.module(name)
        if not fromlist:
            return self._table[name.partition(".")[0]]
        for leaf in fromlist:
            below = f"{name}.{leaf}"
            # A submodule is imported on demand; of an executed package, also one that is not listed.
            if self.has(below) or (hasattr(module, "__file__") and not hasattr(module, leaf) and self._file(below)):
                self.module(below)
        return module

    def _answers(self, name: str) -> bool:
        """The tree answers for its package, for what is replaced, and for every third-party package but the host's."""
        top = name.partition(".")[0]
        if top == self.package or top in self._replaced:
            return True
        return top not in HOST and top not in sys.stdlib_module_names

    def _owns(self, name: str) -> bool:
        return name == self.package or name.startswith(f"{self.package}.")

    def _file(self, name: str) -> Path | None:
        path = self.root.joinpath(*name.split("."))
        files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)

    def _missing(self, what: str, file: Path) -> str:
        known = f"; supported: {self.package} {self.supported}" if self.supported else ""
        return f"{what} is missing in {file}: this release has moved it or never had it{known}"


def _take_out(owned: Callable[[str], bool]) -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if owned(name)}
