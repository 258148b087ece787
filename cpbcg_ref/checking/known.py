"""Failures of an engine that its owner knows. They stay failures: only the exit code changes.

    [[failure]]
    id = "capacity.no-overflow"
    reason = "the bucket is picked by the number of tokens alone"
    link = "https://github.com/sgl-project/sglang/pull/33906"
    releases = ">=0.5.16,<0.5.18"    # optional, as in PEP 440; without it every version

An entry whose invariant holds again is an error, so that the file never hides what it does not have to. An entry that
covers another version, or whose invariant was not selected, says nothing.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from cpbcg_ref.checking.results import Result
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import REGISTRY

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry. `releases` is a range of versions in the words of PEP 440, "" for every version."""

    id: Text
    reason: Text
    link: Text
    releases: str = ""

    def __post_init__(self) -> None:
        if self.id not in REGISTRY:
            near = get_close_matches(self.id, REGISTRY, n=1)
            hint = f"did you mean {near[0]}?" if near else "`cpbcg invariants` lists them"
            raise InvalidInput(f"no invariant is called {self.id!r}: {hint}")
        try:
            SpecifierSet(self.releases)
        except InvalidSpecifier:
            raise InvalidInput(f"releases is {self.releases!r}: write a range such as '>=0.5.19,<0.5.22'") from None

    def covers(self, version: str) -> bool:
        try:
            return not self.releases or SpecifierSet(self.releases).contains(Version(version), prereleases=True)
        except InvalidVersion:
            what = f"the engine's version is {version!r}: it cannot be compared with releases {self.releases!r}"
            raise InvalidInput(f"{what} of the known failure {self.id}; leave releases out") from None


class KnownFailures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failure: tuple[KnownFailure, ...] = ()


def read_known_failures(path: Path) -> tuple[KnownFailure, ...]:
    """The entries of a TOML file; InvalidInput names the file, the entry (from 0), what is wrong and the rule."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), KnownFailures).failure
    except msgspec.ValidationError as problem:
        raise InvalidInput(f"{path}: {problem}") from problem
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{path}: cannot be read as TOML: {problem}") from problem


def covering(entries: Sequence[KnownFailure], version: str) -> dict[str, KnownFailure]:
    """By id, the first entry that covers this version."""
    return {one.id: one for one in reversed(entries) if one.covers(version)}


def as_known(result: Result, entry: KnownFailure | None) -> Result:
    """The result beside what its owner knows: a failure is marked, a full pass is an error, all else cannot be told."""
    if entry is None:
        return result
    listed = f"listed as a known failure ({entry.reason})"
    if result.outcome == "fail":
        return replace(result, known=True, reason=entry.reason, link=entry.link)
    if result.outcome == "pass" and not result.message:
        gone = f"{listed}, but it no longer fails: remove its entry, or narrow its releases"
        return replace(result, outcome="error", message=gone)
    return replace(result, message=f"{result.message}; {listed}: whether it still fails was not seen")
