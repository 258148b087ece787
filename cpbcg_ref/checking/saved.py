"""Failures kept as files: a readable JSON document each, to be put to any engine again.

    STATE/failures/3f9c2ab1.json

A file is called after its failure's id, which is made from the invariant and the case: the same failure has the same
id on every machine, and a later find replaces an earlier one. STATE is the platform's user state folder, or
$CPBCG_STATE. A folder in a repository serves as well: its files are a regression suite.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.engines.targets import anywhere
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import REGISTRY


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """One failure: a case by which an engine violated an invariant, and where that was seen last.

    target: as it was typed, a path in full unless the folder is the caller's own. python: rebuilds the case. saved:
    when, in UTC.
    """

    id: str
    invariant: str
    level: str
    target: str
    engine: str
    version: str
    message: str
    case: Any
    python: str
    profile: str
    seed: int
    saved: str


def state_folder() -> Path:
    """Where this user's state lies between two runs."""
    state = os.environ.get("CPBCG_STATE") or platformdirs.user_state_path("cpbcg", appauthor=False)
    return Path(state).absolute()


def failures_folder() -> Path:
    return state_folder() / "failures"


def id_of(invariant: str, case: Any) -> str:
    """Fields at their default do not count: a case keeps its id when a later version knows more fields."""
    return hashlib.sha256(f"{invariant} {as_python(case)}".encode()).hexdigest()[:8]


def keep(report: Report, folder: Path, *, options: str = "") -> Report:
    """Save the failures of a check that nobody expected; their results then name the command that replays them.

    `options`: what that command needs beside the id. Raises OSError if the folder cannot be written.
    """
    found = {name: getattr(report, name) for name in ("target", "engine", "version", "profile", "seed")}
    results = []
    for result in report.results:
        if result.counterexample and not result.known:
            saved = save(result, folder, **found)
            result = dataclasses.replace(result, replay=f"cpbcg replay {saved.id}{options}")
        results.append(result)
    return dataclasses.replace(report, results=tuple(results))


def save(result: Result, folder: Path, **found: Any) -> Saved:
    """Write one failing result down. `found`: target, engine, version, profile and seed.

    Raises OSError if the folder cannot be written.
    """
    assert result.counterexample, "only a result with a case can be saved"
    case, now = rebuilt(result.counterexample.case, result.invariant), datetime.now(UTC).isoformat(timespec="seconds")
    told = {name: getattr(result, name) for name in ("invariant", "level", "message")}
    name = id_of(result.invariant, case)
    if folder == failures_folder():  # else the file may lie in a repository, and so may what it names
        found["target"] = anywhere(found["target"])
    saved = Saved(id=name, case=case, python=as_python(case), saved=now, **told, **found)
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f".{name}-{os.getpid()}"  # a reader never meets half a file
    whole.write_text(as_text(saved), encoding="utf-8")
    whole.replace(folder / f"{name}.json")
    return saved


def document(saved: Saved) -> dict[str, Any]:
    return dataclasses.asdict(saved) | {"case": {"kind": type(saved.case).__name__} | dataclasses.asdict(saved.case)}


def as_text(saved: Saved) -> str:
    """Indented, a list of numbers on one line."""
    text = json.dumps(document(saved), indent=2) + "\n"
    return re.sub(r'\[\n([^][{}"]*?)\n\s*\]', lambda found: f"[{' '.join(found[1].split())}]", text)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def find(name: str, folder: Path) -> Path:
    """The file of an id, of an unambiguous beginning of one, or of a path. Raises InvalidInput."""
    if Path(name).is_file():
        return Path(name)
    ids = [file.stem for file in files(folder)]
    fitting = [one for one in ids if name and one.startswith(name.lower())]
    if len(fitting) == 1:
        return folder / f"{fitting[0]}.json"
    if fitting:
        raise InvalidInput(f"{name!r} is the beginning of {len(fitting)} ids: {', '.join(fitting)}")
    near = get_close_matches(name.lower(), ids, n=3) or ids[:3]
    hint = f"did you mean {' or '.join(near)}? --list shows all" if near else "nothing is"
    raise InvalidInput(f"no failure {name!r} is saved in {folder}: {hint}")


def read(path: Path) -> Saved:
    """The failure in a file. Raises InvalidInput that names the file, the place in it and the rule."""
    try:
        saved = msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Saved)
        saved = dataclasses.replace(saved, case=rebuilt(saved.case, saved.invariant))
        due = id_of(saved.invariant, saved.case)
        if saved.id != due:
            raise InvalidInput(f"id is {saved.id!r}: this invariant and this case make it {due} (was the file edited?)")
        if path.stem != due:
            raise InvalidInput(f"the file of failure {due} is called {due}.json")
    except msgspec.ValidationError as problem:
        raise InvalidInput(f"{path} is no saved failure: {placed(problem)}") from problem
    except InvalidInput as problem:
        raise InvalidInput(f"{path}: {problem}") from problem
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{path} cannot be read as JSON: {problem}") from problem
    return saved


def rebuilt(described: Any, invariant: str) -> Any:
    """The case that plain data describes, of a kind that the invariant is asked with. Raises InvalidInput."""
    if invariant not in REGISTRY:
        near = get_close_matches(invariant, REGISTRY, n=1) or ["one of `cpbcg invariants`"]
        raise InvalidInput(f"invariant is {invariant!r}, which there is not: did you mean {near[0]}?")
    if not isinstance(described, dict):
        raise InvalidInput(f"case is {described!r}: it must be an object with the fields of a case")
    asked = [FAMILIES[part.family].case for part in REGISTRY[invariant].parts]
    kinds: dict[str, Any] = {case.__name__: case for case in asked}
    fields = dict(described)
    kind = fields.pop("kind", None)
    if str(kind) not in kinds:
        raise InvalidInput(f"case.kind is {kind!r}: {invariant} is asked with a {' or '.join(sorted(kinds))}")
    try:
        case = msgspec.convert(fields, kinds[kind])
    except msgspec.ValidationError as problem:
        raise InvalidInput(placed(problem, "case")) from problem
    if foreign := next(unknown(fields, case, "case"), None):
        raise InvalidInput(f"{foreign} is no field of a {kind}")
    return case


def unknown(described: Any, value: Any, place: str) -> Iterator[str]:
    """Places in the data for which the value that was made of it has no field."""
    if isinstance(value, tuple):
        for i, (inner, own) in enumerate(zip(described, value, strict=True)):
            yield from unknown(inner, own, f"{place}[{i}]")
    elif dataclasses.is_dataclass(value):
        own = vars(value)
        for key, inner in described.items():
            yield from unknown(inner, own[key], f"{place}.{key}") if key in own else [f"{place}.{key}"]


def placed(problem: msgspec.ValidationError, root: str = "") -> str:
    """Such as "case.server.cp_size: Expected `int`, got `str`"."""
    what, _, place = str(problem).partition(" - at ")
    return f"{(root + place.strip('`').removeprefix('$')).lstrip('.') or 'the document'}: {what}"
