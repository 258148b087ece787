"""Copies of the core with one thing changed, for faults that sit inside one of its functions.

The copy is imported under a name of its own by the usual import machinery; only the text it reads is another.
"""

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

import cpbcg_ref

CORE = Path(cpbcg_ref.__file__).parent
Edit = tuple[str, str, str]  # a core file's name, the text as it stands there once, the text instead


class EditedSource(SourceFileLoader):
    """Reads a core file with the edits in it; no byte code is written beside the original."""

    def __init__(self, fullname: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self.edits = edits

    def get_data(self, path: str) -> bytes:
        text = Path(path).read_text(encoding="utf-8")
        for file, old, new in self.edits:
            if Path(path).stem == file:
                assert text.count(old) == 1, f"{file}.py has {old!r} {text.count(old)} times: the edit needs it once"
                text = text.replace(old, new)
        return text.replace("from cpbcg_ref.", f"from {self.name.split('.')[0]}.").encode()

    def path_stats(self, path: str) -> dict[str, object]:
        raise OSError("never taken from a cache, never put there")


class EditedPackage(MetaPathFinder):
    def __init__(self, name: str, edits: Sequence[Edit]) -> None:
        self.name, self.loader = name, partial(EditedSource, edits=edits)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package != self.name:
            return None
        file = str(CORE / f"{module or '__init__'}.py")
        inside = [str(CORE)] if not module else None
        loader = self.loader(fullname, file)
        return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=inside)


def edited(name: str, edits: Sequence[Edit]) -> ModuleType:
    """The library with these edits, imported as the package `name`.

    Raises AssertionError if a text to replace is not in its file exactly once.

    >>> wrong = edited("cpbcg_example", [("layout", "return min(lengths, default=0) >= 2 * n", "return True")])
    >>> wrong.is_cp_active([1], cp_size=4), cpbcg_ref.is_cp_active([1], cp_size=4)
    (True, False)
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, EditedPackage(name, edits))
    return importlib.import_module(name)
