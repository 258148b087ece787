"""Every state that the negotiation can reach in a domain, breadth first: the first trace to a violation is a shortest.

An engine is started anew for each trace and its passes run from the first on: nothing is assumed of how it keeps its
state. States are told apart by what monitors.py says, and by whether the ranks' clocks ever stood apart: as in a check,
only the ids on skewed passes (delay.agree) are judged where they did.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from cpbcg_ref.answers import LastPassSeen, PassesSeen, Raised, Verdict
from cpbcg_ref.asking import FAMILIES, run_passes
from cpbcg_ref.cases import LastPassCase, Pass, PassesCase
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Part
from cpbcg_ref.invariants.pictures import picture
from cpbcg_ref.oracles.passes import FRESH
from cpbcg_ref.sweeping.definitions import Turn, broken
from cpbcg_ref.sweeping.domains import Domain, domains
from cpbcg_ref.sweeping.monitors import Past, pasts, state
from cpbcg_ref.sweeping.scope import Search

Checks = dict[str, list[Part]]
PAIRED = ("max_prefill_bs", "waiting_queue_len")  # fields that the ids on pairs of last passes change


def checks(kind: type, contract: Any) -> Checks:
    """The registry's checkers of delay.* that judge this kind of case."""
    of_delay = {name: one.parts for name, one in REGISTRY.items() if name.startswith("delay.")}
    asked = {name: [p for p in parts if FAMILIES[p.family].case is kind] for name, parts in of_delay.items()}
    return {name: kept for name, parts in asked.items() if (kept := [p for p in parts if not p.excluded(contract)])}


@dataclass(frozen=True, kw_only=True)
class Node:
    """A state: one shortest trace to it, what that was answered, and the past of every rank."""

    passes: tuple[Pass, ...] = ()
    answers: tuple[Any, ...] = ()
    past: tuple[Past, ...]

    @property
    def skewed(self) -> bool:
        return any(len({report.now_ms for report in reports}) > 1 for reports in self.passes)


@dataclass(kw_only=True)
class Walk:
    """One search while it goes on. found: per id the first violation."""

    engine: Any
    domain: Domain
    states: int = 0
    transitions: int = 0
    deepest: int = 0
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config, self.contract = self.domain.config, self.engine.contract
        self.traces, self.pairs = (checks(kind, self.contract) for kind in (PassesCase, LastPassCase))

    def run(self, depth: int) -> bool:
        """Search traces of up to `depth` passes; is no state left that was not gone on from."""
        start = Node(past=(Past(),) * self.domain.ranks)
        seen, level = {self.state_of(start)}, [start]
        for self.deepest in range(1, depth + 1):
            below = []
            for node in level:
                reached = [self.step(node, reports) for reports in self.domain.passes]
                self.judge_pairs(node, [one for one in reached if not one.skewed])
                for one in reached:
                    key = None if raised(one.answers[-1]) else self.state_of(one)
                    if key is not None and key not in seen:
                        seen.add(key)
                        below.append(one)
            level = below
            if not level:
                break
        self.states = len(seen)
        return not level

    def state_of(self, node: Node) -> Any:
        verdicts = node.answers[-1] if node.answers else (FRESH,) * self.domain.ranks
        return node.skewed, state(verdicts, node.past, clocks(node), limit=self.config.max_delay_ms)

    def step(self, node: Node, reports: Pass) -> Node:
        """One transition: the trace so far and one pass more, on a fresh engine."""
        times = zip(reports, clocks(node), strict=True)
        now = tuple(replace(report, now_ms=clock + report.now_ms) for report, clock in times)
        passes = (*node.passes, now)
        answers = run_passes(self.engine, self.config, passes)
        self.transitions += 1
        past = (
            node.past
            if raised(answers[-1])
            else pasts(node.past, now, answers[-1], bound=max(1, self.config.max_delay_passes))
        )
        reached = Node(passes=passes, answers=answers, past=past)
        self.judge(node, reached)
        return reached

    def judge(self, node: Node, reached: Node) -> None:
        case, seen = PassesCase(config=self.config, passes=reached.passes), PassesSeen(passes=reached.answers)
        family = "skewed-passes" if reached.skewed else None
        self.check(self.traces, case, seen, family)
        if raised(reached.answers[-1]):
            return
        before = node.answers[-1] if node.answers else (FRESH,) * self.domain.ranks
        told = {"reports": reached.passes[-1], "verdicts": reached.answers[-1], "before": before}
        turn = Turn(config=self.config, past=node.past, now=reached.past, **told)
        for name in broken(turn, list(asked(self.traces, family))):
            if name not in self.found:  # a checker that misses it is wrong, or the definition is: both are to be seen
                self.note(name, f"pass {len(reached.passes)} breaks it by definition", case, seen)

    def judge_pairs(self, node: Node, reached: Sequence[Node]) -> None:
        """Two passes from one state that differ in one field of one rank."""
        passes, answers = ([getattr(one, name)[-1] for one in reached] for name in ("passes", "answers"))
        for one, other in self.pairs_of(passes):
            told = {"history": node.answers, "last": answers[one], "other_last": answers[other]}
            case = LastPassCase(config=self.config, history=node.passes, last=passes[one], other_last=passes[other])
            self.check(self.pairs, case, LastPassSeen(**told))

    def pairs_of(self, passes: Sequence[Pass]) -> Iterator[tuple[int, int]]:
        for name in PAIRED:
            zero: dict[str, Any] = {name: 0}
            for rank in range(self.domain.ranks):
                alike: dict[Pass, list[int]] = {}
                for index, reports in enumerate(passes):
                    rest = replace(reports[rank], **zero)
                    alike.setdefault((*reports[:rank], rest, *reports[rank + 1 :]), []).append(index)
                yield from (pair for same in alike.values() for pair in combinations(same, 2))

    def check(self, checks: Checks, case: Any, seen: Any, family: str | None = None) -> None:
        for name, parts in asked(checks, family).items():
            for part in parts if name not in self.found else ():
                if sentence := part.check(case, seen, self.contract):
                    self.note(name, sentence, case, seen)

    def note(self, name: str, sentence: str, case: Any, seen: Any) -> None:
        told = {"message": sentence, "case": as_python(case), "picture": picture(case, seen, self.contract)}
        passes = len(case.passes) if isinstance(case, PassesCase) else len(case.history) + 1
        self.found.setdefault(name, told | {"size": passes})


def asked(checks: Checks, family: str | None) -> Checks:
    """Those of this family of cases; all without one."""
    if family is None:
        return checks
    own = {name: [part for part in parts if part.family == family] for name, parts in checks.items()}
    return {name: parts for name, parts in own.items() if parts}


def clocks(node: Node) -> tuple[float, ...]:
    return tuple(report.now_ms for report in node.passes[-1]) if node.passes else (0.0,) * len(node.past)


def raised(verdicts: Sequence[Verdict | Raised]) -> bool:
    return any(isinstance(verdict, Raised) for verdict in verdicts)


def sweep(engine: Any, part: Search) -> dict[str, Any]:
    """Search one domain; per id the first violation, which no shorter trace of the domain has."""
    began, walk = time.process_time(), Walk(engine=engine, domain=domains(part.ranks)[part.domain])
    complete = walk.run(part.depth)
    told = {"states": walk.states, "transitions": walk.transitions, "passes": walk.deepest, "complete": complete}
    return told | {"seconds": time.process_time() - began, "violations": walk.found}
