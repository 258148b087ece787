"""A sweep from its scope to its outcome: what is left of it is asked, what ended is kept."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpbcg_ref.checking.workers import Ended
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.targets import anywhere, resolve
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.sweeping import spread
from cpbcg_ref.sweeping.domains import domains
from cpbcg_ref.sweeping.journal import Journal, default_file, key_of
from cpbcg_ref.sweeping.scope import Part, Scope, parts

Watch = Callable[["Progress"], None]


@dataclass(kw_only=True)
class Progress:
    """How far a sweep is."""

    done: int
    total: int
    began: float
    last: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep came to. found: per part, in the order of the parts. resumed: parts known from an earlier run."""

    target: str
    engine: str
    version: str
    scope: Scope
    parts: tuple[Part, ...]
    found: dict[str, dict[str, Any]]
    skipped: dict[str, str]
    problems: dict[str, str]
    resumed: int
    seconds: float
    workers: str
    interrupted: bool
    journal: Path | None

    @property
    def violations(self) -> dict[str, dict[str, Any]]:
        """Per id the smallest that some part found: of fewest requests or passes."""
        least: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            for name, told in self.found.get(part.name, {}).get("violations", {}).items():
                if name not in least or told["size"] < least[name]["size"]:
                    least[name] = told | {"part": part.name, "level": REGISTRY[name].level}
        return {name: least[name] for name in REGISTRY if name in least}

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        if any(one["level"] == "MUST" for one in self.violations.values()):
            return 1
        return 2 if self.problems else 0


def sweep(
    target: str,
    scope: Scope,
    *,
    workers: int | None = None,
    resume: Path | None = None,
    scheduler: str | None = None,
    allow_unpinned: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    watch: Watch = lambda progress: None,
) -> Outcome:
    """Ask every part that is left. Ctrl-C ends it; what had ended stays in the journal.

    Raises TargetError if the engine cannot be obtained, CpbcgError if it can be asked nothing of the scope or no
    scheduler answers, InvalidInput for a journal that cannot be used.
    """
    began, target = time.monotonic(), anywhere(target)
    engine = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
    scope, skipped = askable(engine, scope)
    wanted, key = parts(scope, engine.contract, domains(scope.ranks)), key_of(target, engine, scope)
    journal = Journal(resume or default_file(key), key)
    left = [part for part in wanted if part.name not in journal.done]
    if resumed := len(wanted) - len(left):
        tell(f"{resumed} of {len(wanted)} parts were done before ({journal.path})")
    count = min(workers or os.cpu_count() or 1, max(1, len(left)))
    ends = spread.on_cluster(target, left, scheduler) if scheduler else spread.here(target, left, count)
    problems: dict[str, str] = {}
    progress = Progress(done=resumed, total=len(wanted), began=began)
    interrupted = False
    try:
        with closing(ends):
            for ended in ends if left else ():
                keep(ended, journal, problems)
                progress.done, progress.last = progress.done + 1, ended.job.name
                watch(progress)
    except KeyboardInterrupt:
        interrupted = True
    finished = not (interrupted or problems or resume)
    if finished:
        journal.path.unlink(missing_ok=True)
    return Outcome(
        target=target,
        engine=engine.name,
        version=engine.version,
        scope=scope,
        parts=tuple(wanted),
        found={part.name: journal.done[part.name] for part in wanted if part.name in journal.done},
        skipped=skipped,
        problems=problems,
        resumed=resumed,
        seconds=time.monotonic() - began,
        workers=scheduler or f"{count} process{'es' * (count != 1)}",
        interrupted=interrupted,
        journal=None if finished else journal.path,
    )


def askable(engine: Any, scope: Scope) -> tuple[Scope, dict[str, str]]:
    """What of the scope the engine can be asked, and why not the rest. Raises CpbcgError if that is nothing."""
    needs: dict[str, Sequence[str]] = {"batches": ("capacity", "rows"), "negotiation": ("negotiation",)}
    lacking = {what: [missing(engine, one) for one in needs[what]] for what in scope.what}
    skipped = {what: reasons[0] or "" for what, reasons in lacking.items() if all(reasons)}
    if set(skipped) == set(scope.what):
        raise CpbcgError(f"{engine.name} {engine.version} can be asked nothing of this sweep: {skipped}")
    return replace(scope, what=tuple(what for what in scope.what if what not in skipped)), skipped


def keep(ended: Ended, journal: Journal, problems: dict[str, str]) -> None:
    if ended.problem:
        problems[ended.job.name] = ended.problem
    else:
        journal.add(ended.job.name, ended.answer)
