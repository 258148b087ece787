"""A campaign: what is known about one engine while it is searched, and what to search next. No processes here.

A round is a family with a seed of its own. A part of an invariant that failed is searched again only to shrink it; the
others go on.
"""

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from cpbcg_ref.checking import saved
from cpbcg_ref.checking.family import PartRun, Violation
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.checking.rounds import Fared, Found, Job, Key, Round
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.size import order
from cpbcg_ref.checking.workers import Ended
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import REGISTRY

ROUND_S, SHRINK_S = 10.0, 60.0  # most that a round, and shrinking one failure, may take
GIVE_UP_AFTER = 3  # errors of one part
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The smallest case so far by which an invariant failed. saved: under this id it can be replayed, "" if not."""

    result: Result
    found: Found
    saved: str


@dataclass(kw_only=True)
class Campaign:
    """Everything that is known so far, and what to do next.

    folder: where failures are saved, None for nowhere. replay: what `cpbcg replay` needs beside an id. asked: cases put
    to the engine, those of shrinking included. rounds: begun, done: ended, by family like the seconds in spent.
    unshrunk: with the seed that found it. times: in how many rounds an invariant failed.
    """

    checker: Checker
    ids: tuple[str, ...]
    seconds: float
    tell: Note
    announce: Callable[[Failure], None]
    folder: Path | None = None
    replay: str = ""
    began: float = field(default_factory=time.monotonic)
    runs: dict[Key, PartRun] = field(init=False)
    rounds: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    asked: int = 0
    to_shrink: list[Job] = field(default_factory=list)
    unshrunk: dict[Key, tuple[Found, int]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    errors: dict[Key, list[str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    interrupted: bool = False

    def __post_init__(self) -> None:
        parts = {(name, index): part for name in self.ids for index, part in enumerate(REGISTRY[name].parts)}
        self.runs = {key: self.checker.part_run(key[0], part) for key, part in parts.items()}
        for family in {part.family for part in parts.values()}:
            self.checker.cases(family, self.of(family).values())

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def of(self, family: str) -> dict[Key, PartRun]:
        return {key: run for key, run in self.runs.items() if run.part.family == family}

    def open(self, key: Key) -> bool:
        run, given_up = self.runs[key], len(self.errors.get(key, ())) >= GIVE_UP_AFTER
        return not (run.skipped or run.violation or key in self.unshrunk or given_up)

    def next_job(self) -> Job | None:
        """Shrinking comes first, then the family that had the least time: one with open witnesses is due twice."""
        if self.to_shrink:
            return replace(self.to_shrink.pop(0), seconds=min(self.left, SHRINK_S))
        families: dict[str, list[Key]] = {}
        for key in filter(self.open, self.runs):
            families.setdefault(self.runs[key].part.family, []).append(key)
        if not families:
            return None
        wanting = {self.runs[key].part.family for key in self.runs if self.open(key) and self.runs[key].unmet}
        family = min(families, key=lambda name: self.spent[name] / (2 if name in wanting else 1))
        self.rounds[family] += 1
        self.spent[family] += 1e-3  # the next worker takes another
        seed = Random(f"{self.checker.seed} {family} {self.rounds[family]}").getrandbits(31)
        return Job(family=family, keys=tuple(families[family]), seed=seed, seconds=min(self.left, ROUND_S))

    def take(self, ended: Ended) -> None:
        if ended.problem:
            self.unanswered(ended)
        else:
            self.count(ended.answer)
            for fared in ended.answer.parts:
                self.note(fared, ended.job)

    def unanswered(self, ended: Ended) -> None:
        """Who is still busy when the time is up has done nothing wrong."""
        job, busy = ended.job, ended.hung and self.left <= 0
        self.tell(f"{job.family}: {'still busy with one case when the time was up' if busy else ended.problem}")
        for key in () if busy else job.keys:
            self.errors.setdefault(key, []).append(f"{ended.problem}, in {job.family}")
            if job.shrink and key in self.unshrunk:
                self.publish(key, *self.unshrunk[key])

    def count(self, done: Round) -> None:
        if done.lost and done.lost not in self.lost:
            self.lost.add(done.lost)
            self.tell(done.lost)
        self.asked += done.asked
        self.spent[done.job.family] += done.seconds
        self.done[done.job.family] += not done.job.shrink
        for fared in done.parts:
            run = self.runs[fared.key]
            run.examples += fared.examples
            run.seconds += done.seconds / len(done.parts)
            run.witnesses.update(fared.witnesses)

    def note(self, fared: Fared, job: Job) -> None:
        """A failure is told once it is shrunk; until then further ones of the same part are only counted."""
        key, found = fared.key, fared.found
        if fared.error:
            self.errors.setdefault(key, []).append(fared.error)
        if found and not job.shrink:
            self.times[key[0]] += 1
        if found and (job.shrink or found.shrunk):
            self.publish(key, found, job.seed)
        elif found and self.open(key):
            self.unshrunk[key] = found, job.seed
            self.to_shrink.append(replace(job, keys=(key,), shrink=True))
        elif job.shrink:
            before = self.unshrunk.pop(key, None)  # None: meanwhile a smallest case came out of the database
            if before and not fared.error:
                self.publish(key, *before)

    def publish(self, key: Key, found: Found, seed: int) -> None:
        """Keep a failure, unless a smaller case of the same invariant is known; told is the first."""
        self.unshrunk.pop(key, None)
        name, known = key[0], self.failures.get(key[0])
        self.runs[key].violation = Violation(found.sentence, found.case, found.seen)
        if known and order(known.found.case) <= order(found.case):
            return
        result = self.checker.part_result(name, self.runs[key])
        kept = self.save(result, seed)
        replay = f"cpbcg replay {kept}{self.replay}" if kept else ""
        options = f"--select {name} --profile {self.checker.profile} --seed {seed}{self.checker.reproduce}"
        check = f"cpbcg check {shlex.quote(self.checker.target)} {options}"
        result = replace(result, replay=replay, reproduce=replay if found.stored else check)
        self.failures[name] = Failure(result=result, found=found, saved=kept)
        if not known:
            self.announce(self.failures[name])

    def save(self, result: Result, seed: int) -> str:
        """Its id, "" if it was not saved: that spoils no verdict."""
        if not self.folder:
            return ""
        engine, profile = self.checker.engine, self.checker.profile
        told = {"target": self.checker.target, "engine": engine.name, "version": engine.version}
        try:
            return saved.save(result, self.folder, **told, profile=profile, seed=seed).id
        except (OSError, InvalidInput) as problem:
            self.tell(f"{result.invariant} could not be saved: {problem}")
            return ""

    def finish(self) -> None:
        for key, before in list(self.unshrunk.items()):
            self.publish(key, *before)
        for key, messages in self.errors.items():
            self.runs[key].error = "" if self.runs[key].violation else messages[0]

    @property
    def exit_code(self) -> int:
        """As of a check. Interrupted, a campaign that found nothing wrong has no verdict: 130, as of any Ctrl-C."""
        code = self.report().exit_code
        return 130 if self.interrupted and code in (0, 3) else code

    def report(self) -> Report:
        """As of a check that took as long."""
        checker = self.checker
        checker.judged = {key: checker.part_result(key[0], run) for key, run in self.runs.items()}
        results = tuple(map(self.result, self.ids))
        told = {"target": checker.target, "engine": checker.engine.name, "version": checker.engine.version}
        told |= {"profile": checker.profile, "seed": checker.seed, "about_deployment": checker.deployment is not None}
        return Report(**told, results=results, executed=(), seconds=time.monotonic() - self.began)

    def result(self, name: str) -> Result:
        result = self.checker.result(name)
        if name not in self.failures:
            early = result.outcome == "unwitnessed" and not any(self.done[part.family] for part in REGISTRY[name].parts)
            return replace(result, message="no case was answered before the time was up") if early else result
        found = self.failures[name].result
        told = {key: getattr(found, key) for key in ("message", "counterexample", "reproduce", "replay")}
        return replace(result, **told)
