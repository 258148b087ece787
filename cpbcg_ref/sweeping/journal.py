"""What parts of a sweep have come to, line by line in a file: a sweep that was interrupted goes on from there.

    {"sweep": {"target": ..., "version": ..., "code": ..., "scope": ...}}
    {"part": "slots, bound 2, 2 ranks, 12 passes", "found": {...}, "sum": "3f9c2ab1"}

It holds for one target, one scope and one state of the code, that of the target and our own. A last line without an end
was being written when the machine stopped: that part is asked again. Anything else that is wrong is an error.
"""

import hashlib
import inspect
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cpbcg_ref
from cpbcg_ref.checking.saved import state_folder
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.sweeping.scope import Scope

ROOMS = ("engines", "faults", "invariants", "oracles", "sweeping")
ADVICE = "delete the file, or name another with --resume, to sweep from the start"


def key_of(target: str, engine: Any, scope: Scope) -> dict[str, Any]:
    """What a sweep is about: equal keys, equal findings."""
    told = {"target": target, "engine": engine.name, "version": engine.version, "code": code_of(engine)}
    return told | {"scope": json.loads(json.dumps(asdict(scope)))}


def code_of(engine: Any) -> str:
    """A checksum of the Python that decides: the engine's roots, its adapter, and of this package what asks and judges.

    Reports and commands may change meanwhile.
    """
    package, adapter = Path(cpbcg_ref.__file__).parent, inspect.getsourcefile(type(engine))
    roots = [*(package / room for room in ROOMS), *map(Path, getattr(engine, "roots", ()))]
    roots += [Path(adapter)] if adapter else []
    files = {file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])}
    return checksum(sorted(files | set(package.glob("*.py"))))


def checksum(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def default_file(key: dict[str, Any]) -> Path:
    """Where this user's sweep of this key is kept while it is not finished."""
    return state_folder() / "sweeps" / f"{digest(json.dumps(key, sort_keys=True))}.jsonl"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class Journal:
    """done: per part what it came to. Raises InvalidInput for a file that is no journal, is spoilt, or is of another
    sweep."""

    def __init__(self, path: Path, key: dict[str, Any]) -> None:
        self.path, self.key = path, key
        self.done: dict[str, dict[str, Any]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.read(path.read_bytes() if path.exists() else b"")
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be used to resume: {problem.strerror}") from problem

    def read(self, content: bytes) -> None:
        """A line that has no end is cut off, so that the next one begins a line."""
        whole = content[: content.rfind(b"\n") + 1]
        if content and not whole and not b'{"sweep": '.startswith(content[:10]):
            raise InvalidInput(f"{self.path} is no journal of a sweep: {ADVICE}")
        for number, line in enumerate(whole.splitlines(), start=1):
            self.take(number, line)
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        if not whole:
            self.write({"sweep": self.key})

    def take(self, number: int, line: bytes) -> None:
        where = f"{self.path}, line {number}"
        try:
            told = json.loads(line)
            if number == 1:
                theirs = told["sweep"]
            elif told["sum"] == sum_of(told["part"], told["found"]):
                self.done[told["part"]] = told["found"]
            else:
                raise ValueError("its checksum is wrong")
        except (ValueError, KeyError, TypeError) as problem:
            raise InvalidInput(f"{where}: this is no line of a journal of a sweep ({problem}): {ADVICE}") from problem
        if number == 1 and theirs != self.key:
            raise InvalidInput(f"{where}: {another(theirs, self.key)}: {ADVICE}")

    def add(self, part: str, found: dict[str, Any]) -> None:
        """A part is finished."""
        self.done[part] = found
        self.write({"part": part, "found": found, "sum": sum_of(part, found)})

    def write(self, line: dict[str, Any]) -> None:
        """Whole, or at least without an end: one write of one line."""
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def sum_of(part: Any, found: Any) -> str:
    return digest(json.dumps([part, found], sort_keys=True))


def another(theirs: Any, ours: dict[str, Any]) -> str:
    """In which way the file is of another sweep."""
    if not isinstance(theirs, dict):
        return "it does not say what was swept"
    differs = next(name for name in (*ours, *theirs) if theirs.get(name) != ours.get(name))
    if differs == "code":
        return "the code has changed since, so what was found no longer holds"
    return f"it is of another sweep, {differs} {theirs.get(differs)!r} and not {ours.get(differs)!r}"
