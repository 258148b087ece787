"""Target strings: from what a person types to an engine that can be asked.

reference, reference:hardened    this project's own implementation
sglang                           the installed one: its files are found, the package is not imported
sglang==0.5.18                   a published wheel, see wheels.py
sglang==LATEST                   the newest of those that pins.toml knows
sglang@DIR                       an unpacked tree: repository root, its python/, the package or its parent folder
torch, torch:per-document        the installed one: what two names with one release share is before the colon
path/to/file.py:Class            an adapter in a file; the file's folder can be imported from
package.module:Class             an adapter in a module; the working directory can be imported from
fault:KEY, variant:KEY           a miniature of the catalogue of seeded faults: wrong, or different and right
"""

import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Hardened, Reference
from cpbcg_ref.errors import TargetError

LATEST = "LATEST"
FORMS = "reference, NAME, NAME==VERSION, NAME@DIR, path/to/file.py:Class, package.module:Class, fault:KEY, variant:KEY"


@dataclass(frozen=True)
class Engine:
    """An engine from elsewhere: its adapter, called with (package_root, version), and its package's folder.

    The folder has an __init__.py; it may lie in one without ("megatron/core"). tried_on: for an engine that can only be
    checked as it is installed, the release that its adapter was made for.
    """

    adapter: str
    package: str
    tried_on: str = ""

    def root(self, package: Path) -> Path:
        """The folder that imports start from."""
        return package.parents[self.package.count("/")]


REFERENCES = {"reference": Reference, "reference:hardened": Hardened}
ENGINES = {
    "sglang": Engine("cpbcg_ref.engines.sglang:SGLang", "sglang"),
    "vllm": Engine("cpbcg_ref.engines.vllm:VLLM", "vllm"),
    "megatron-core": Engine("cpbcg_ref.engines.megatron:Megatron", "megatron/core"),
    "transformer-engine": Engine("cpbcg_ref.engines.transformer_engine:TransformerEngine", "transformer_engine"),
    "verl": Engine("cpbcg_ref.engines.verl:Verl", "verl"),
    "verl:thd-engine": Engine("cpbcg_ref.engines.verl:ThdEngine", "verl"),
    "torch": Engine("cpbcg_ref.engines.torch_native:HeadTail", "torch", tried_on="2.13.0"),
    "torch:per-document": Engine("cpbcg_ref.engines.torch_native:PerDocument", "torch", tried_on="2.13.0"),
}


def known_engines() -> list[dict[str, Any]]:
    """Every engine that has a name: releases with a known sha256, those of them in the cache, the version installed,
    and for one that can only be checked as it is installed the release that its adapter was tried on.

    Nothing is imported or downloaded.
    """
    own = [listed(name, reference.version) for name, reference in REFERENCES.items()]
    return own + [listed(name, (installed(name) or (None, None))[1], one.tried_on) for name, one in ENGINES.items()]


def listed(name: str, version: str | None, tried_on: str = "") -> dict[str, Any]:
    pinned = list(wheels.pins(released(name)))
    cached = [version for version in pinned if wheels.cached(released(name), version)]
    return {"name": name, "pinned": pinned, "cached": cached, "installed": version, "tried_on": tried_on or None}


def released(name: str) -> str:
    """What the releases of an engine are called."""
    return name.partition(":")[0]


def supported_range(name: str) -> str:
    """The releases that an adapter was made for, for messages: "0.5.16 to 0.5.23"."""
    pinned = list(wheels.pins(released(name))) or [ENGINES[name].tried_on or "no release"]
    return " to ".join(dict.fromkeys((pinned[0], pinned[-1])))


def resolve(target: str, *, allow_unpinned: bool = False, progress: wheels.Tell | None = None) -> Any:
    """The engine that a target string names, ready to be asked (see contract.py).

    `allow_unpinned` permits a release without a known sha256; `progress` receives lines for people, so not stdout when
    that carries JSON. Raises TargetError if the engine cannot be obtained.

    >>> resolve("reference").name
    'reference'
    """
    named = re.fullmatch(r"([\w:-]+)(?:(==|@)(.*))?", exact(target, tell=progress), re.DOTALL)
    name, separator, rest = named.groups("") if named else ("", "", "")
    kind, _, key = target.partition(":")
    if kind in ("fault", "variant"):
        return miniature(kind, key)
    if name not in ENGINES:
        return own_adapter(target)
    if separator and ENGINES[name].tried_on:
        raise TargetError(f"{target!r}: {released(name)} is checked as it is installed in {sys.prefix}: write {name}")
    if not separator:
        place = installed(name)
    elif separator == "@":
        place = unpacked(name, rest)
    elif re.fullmatch(r"\d[\w.!+-]*", rest, re.ASCII):
        place = wheels.fetch(released(name), rest, allow_unpinned=allow_unpinned, progress=progress), rest
    else:
        number = next(reversed(wheels.pins(released(name))), "1.0")
        raise TargetError(
            f"{target!r}: {rest!r} is not one release, write a number such as {name}=={number} or {LATEST}"
        )
    if place is None:
        others = f"name a release ({name}==V) or a tree ({name}@DIR)"
        advice = "pip install 'cpbcg[torch]'" if ENGINES[name].tried_on else others
        raise TargetError(f"{released(name)} is not installed in {sys.prefix}: {advice}")
    return make(target, name, *place)


def exact(target: str, *, tell: wheels.Tell | None = None) -> str:
    """The same target with a number for LATEST, which is the newest release with a known sha256; `tell` is told which.

    Raises TargetError for an engine of which no release is known.

    >>> exact("sglang==0.5.18")
    'sglang==0.5.18'
    """
    name, _, release = target.partition("==")
    if name not in ENGINES or ENGINES[name].tried_on or release != LATEST:
        return target
    if not (pinned := list(wheels.pins(released(name)))):
        raise TargetError(f"{target}: no release of {name} is in pins.toml, so none is the latest: write its number")
    if tell:
        tell(f"{target} is {name}=={pinned[-1]}, the newest release with a known sha256")
    return f"{name}=={pinned[-1]}"


def miniature(kind: str, key: str) -> Any:
    """A small engine of the catalogue. The catalogue is made of engines, so it is imported here and not above."""
    from cpbcg_ref.faults import FAULTS, VARIANTS

    known: dict[str, Any] = {**FAULTS} if kind == "fault" else {**VARIANTS}
    if key not in known:
        near = get_close_matches(key, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`cpbcg faults --list` lists them"
        raise TargetError(f"no {kind} is called {key!r}: {hint}")
    return known[key].engine


def make(target: str, name: str, root: Path, version: str) -> Any:
    try:
        return pkgutil.resolve_name(ENGINES[name].adapter)(root, version)
    except Exception as error:
        kind = "" if isinstance(error, TargetError) else f"{type(error).__name__}: "
        lacks_torch = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        advice = "pip install 'cpbcg[torch]'" if lacks_torch else f"the adapter was made for {supported_range(name)}"
        raise TargetError(f"{target}: {kind}{error} ({advice})") from error


def installed(name: str) -> tuple[Path, str] | None:
    """Package root and version of what this Python would import, found without executing it."""
    first, *inside = ENGINES[name].package.split("/")
    spec = importlib.util.find_spec(first)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        package = Path(folder, *inside)
        if (package / "__init__.py").is_file():  # else it may be a clone in the working directory: no installation
            root = ENGINES[name].root(package)
            return root, tree_version(name, root)
    return None


def unpacked(name: str, folder: str) -> tuple[Path, str]:
    """Package root and version of a tree. The parent layouts come first: a clone often has the package's name."""
    package, base = ENGINES[name].package, absolute(folder)
    roots = [base, base / "python", *([ENGINES[name].root(base)] if base.as_posix().endswith(f"/{package}") else [])]
    for root in roots if folder else []:
        if next((root / package).rglob("*.py"), None):
            return root, tree_version(name, root)
    none = f"no Python files in {' or '.join(str(root / package) for root in roots)}"
    raise TargetError(f"{name}@{folder}: {none}: name the repository root, its python/ or {package}/")


def absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


def anywhere(target: str) -> str:
    """The same target from every working directory: a path in full."""
    name, at, folder = target.partition("@")
    if at and name in ENGINES:
        return f"{name}@{absolute(folder)}"
    where, _, symbol = target.rpartition(":")
    return f"{absolute(where)}:{symbol}" if where.endswith(".py") else target


def tree_version(name: str, root: Path) -> str:
    """Read, never executed: _version.py, version.py, or the metadata that a wheel leaves beside the package."""
    package = root / ENGINES[name].package
    metadata = sorted(root.glob(f"{released(name).replace('-', '_')}-*.dist-info/METADATA"))
    for file in (package / "_version.py", package / "version.py", *metadata):
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
        if found := re.search(r"""^(?:__version__ ?=.*["']([^"']+)["']|Version: (\S+))\s*$""", text, re.MULTILINE):
            return found[1] or found[2]
    return f"unknown ({root})"


def own_adapter(target: str) -> Any:
    """The reference, or an object of the class that a stranger's file or module holds."""
    if target in REFERENCES:
        return REFERENCES[target]()
    where, _, symbol = target.rpartition(":")
    is_file = where.endswith(".py") or "/" in where or "\\" in where
    is_module = where not in ENGINES and all(part.isidentifier() for part in where.split("."))
    if not symbol or not (is_file or is_module):
        raise TargetError(f"unknown target {target!r}: the forms are {FORMS}; NAME is one of {', '.join(ENGINES)}")
    module = load(target, where, is_file=is_file)
    return declared(target, attempt(target, f"{symbol}()", find_symbol(target, module, symbol)))


def declared(target: str, found: Any) -> Any:
    """The object, if it has the attributes without which nothing about it can be reported."""
    for name, kind in {"name": str, "version": str, "contract": Contract}.items():
        if not isinstance(getattr(found, name, None), kind):
            raise TargetError(f"{target!r}: the object has no {name} ({kind.__name__}), see {Contract.__module__}")
    return found


def load(target: str, where: str, *, is_file: bool) -> Any:
    """The module in a file or of that name. It can import from the file's folder or from the working directory."""
    path = absolute(where)
    folder = path.parent if is_file else Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    if not is_file:
        return attempt(target, f"importing {where} (also from {folder})", importlib.import_module, where)
    if not path.is_file():
        raise TargetError(f"{target!r}: there is no file {path}")
    module = ModuleType(f"cpbcg_target_{path.stem}")
    module.__file__, sys.modules[module.__name__] = str(path), module
    # Compiled here, not by an importer: its cache misses an edit of the same size within the same second.
    attempt(target, f"running {path}", lambda: exec(compile(path.read_bytes(), str(path), "exec"), vars(module)))
    return module


def find_symbol(target: str, module: ModuleType, symbol: str) -> Any:
    try:
        return attrgetter(symbol)(module)
    except AttributeError:
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise TargetError(f"{target!r}: no {symbol} in {module.__name__}, it has {', '.join(own) or 'none'}") from None


def attempt(target: str, doing: str, function: Callable[..., Any], *args: Any) -> Any:
    """Run a stranger's code: whatever it raises, sys.exit() included, makes the target unobtainable."""
    try:
        return function(*args)
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target!r}: {doing} raised {type(error).__name__}: {error}") from error
