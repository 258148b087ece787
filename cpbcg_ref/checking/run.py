"""Check invariants on one engine in this process: families are swept once, results are per invariant."""

import dataclasses
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis.strategies import SearchStrategy

from cpbcg_ref.cases import Deployment
from cpbcg_ref.checking.family import RECORDED_CASES, FamilyRun, PartRun, Violation
from cpbcg_ref.checking.results import OUTCOMES, Counterexample, Result
from cpbcg_ref.checking.single import why_not
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Part
from cpbcg_ref.invariants.pictures import picture
from cpbcg_ref.strategies import cases_for

ROUNDS = 4  # how often a family is asked again, with another seed, for a witness that did not come up


@dataclasses.dataclass(kw_only=True)
class Checker:
    """One engine under one profile and seed. Parts that were judged are kept, so asking twice costs nothing.

    >>> from cpbcg_ref.engines.reference import Reference
    >>> checker = Checker(engine=Reference(), target="reference", profile="dev")
    >>> checker.check("select.pure").outcome
    'pass'
    """

    engine: Any
    target: str
    profile: str = "ci"
    seed: int = 0
    deployment: Deployment | None = None
    known: frozenset[str] = frozenset()  # ids that are expected to fail: not shrunk
    reproduce: str = ""  # what else the command line needs to reproduce a verdict
    judged: dict[tuple[str, int], Result] = dataclasses.field(default_factory=dict)  # by id and index of the part
    executed: set[str] = dataclasses.field(default_factory=set)
    recorded: int = RECORDED_CASES  # of each family, into `executed`: 0 takes half of the time

    def check(self, invariant_id: str) -> Result:
        """Verdict on one invariant; its families are swept for all their invariants at once."""
        for index, part in enumerate(REGISTRY[invariant_id].parts):
            if (invariant_id, index) not in self.judged:
                self.sweep(part.family, REGISTRY)
        return self.result(invariant_id)

    def sweep(self, family: str, ids: Iterable[str]) -> None:
        """Judge the parts of these invariants that ask this family of cases."""
        parts = [(name, index, part) for name in ids for index, part in enumerate(REGISTRY[name].parts)]
        runs = {(name, index): self.part_run(name, part) for name, index, part in parts if part.family == family}
        strategy = self.cases(family, runs.values())
        if asked := [run for run in runs.values() if not run.skipped]:
            how: dict[str, Any] = {"engine": self.engine, "profile": self.profile, "executed": self.executed}
            how |= {"asked": RECORDED_CASES - self.recorded, "pinned": self.deployment is not None}
            of_family = FamilyRun(family=family, strategy=strategy, **how)
            of_family.judge(asked, first_seed=self.seed, rounds=1 if self.deployment else ROUNDS)
        self.judged |= {key: self.part_result(key[0], run) for key, run in runs.items()}

    def cases(self, family: str, runs: Iterable[PartRun]) -> SearchStrategy[Any]:
        """What this engine is asked; where there is nothing to ask it, the parts of this family are skipped."""
        strategy = cases_for(family, self.engine.contract, deployment=self.deployment)
        for run in runs if strategy.is_empty else ():
            run.skipped = run.skipped or f"this {'server' if self.deployment else 'engine'} never shards a batch"
        return strategy

    def part_run(self, invariant_id: str, part: Part) -> PartRun:
        demanded = part.demanded(self.engine.contract)
        known, skipped = invariant_id in self.known, self.why_not(invariant_id, part)
        return PartRun(part=part, skipped=skipped, demanded=demanded, known=known)

    def why_not(self, invariant_id: str, part: Part) -> str:
        """Why the engine cannot be asked about this part, "" if it can."""
        if self.deployment and part.family == "dispatch":
            return "a configuration describes no choice of graphs for steps"
        table = "delayer" if invariant_id.startswith("delay.") else "server"
        if self.deployment and getattr(self.deployment, table) is None:
            return f"the configuration has no [{table}]"
        return why_not(self.engine, part)

    def part_result(self, invariant_id: str, run: PartRun) -> Result:
        outcome, message = self.verdict(run)
        told: dict[str, Any] = {"outcome": outcome, "message": message, "stopped": run.stopped}
        told |= {name: getattr(run, name) for name in ("examples", "seconds", "searched")}
        told["witnesses"] = {name: run.witnesses[name] for name in run.part.witnesses if not run.skipped}
        told["shares"] = {name: round(n / max(run.examples, 1), 4) for name, n in told["witnesses"].items()}
        if run.violation and outcome == "fail":
            options = f"--select {invariant_id} --profile {self.profile} --seed {self.seed}{self.reproduce}"
            told["reproduce"] = f"cpbcg check {shlex.quote(self.target)} {options}"
            told["counterexample"] = self.counterexample(run.violation)
        return Result(invariant=invariant_id, level=REGISTRY[invariant_id].level, **told)

    def counterexample(self, found: Violation) -> Counterexample:
        case = {"kind": type(found.case).__name__} | dataclasses.asdict(found.case)
        shown = picture(found.case, found.seen, self.engine.contract)
        return Counterexample(case=case, python=as_python(found.case), picture=shown)

    def verdict(self, run: PartRun) -> tuple[str, str]:
        """Outcome and message."""
        ends = {"skip": run.skipped, "error": run.error, "fail": str(run.violation or "")}
        for outcome, message in ends.items():
            if message:
                return outcome, message
        if not run.examples:
            return "unwitnessed", "no case could be put to the engine: every one was refused"
        if not run.unmet:
            return "pass", ""
        excluded = ", or this server excludes it" if self.deployment else ""
        return "unwitnessed", f"never came up in {run.examples} examples{excluded}: {'; '.join(run.unmet)}"

    def result(self, invariant_id: str) -> Result:
        """The worst of the invariant's parts, with the numbers of all."""
        results = [self.judged[invariant_id, index] for index in range(len(REGISTRY[invariant_id].parts))]
        worst = min(results, key=lambda result: OUTCOMES.index(result.outcome))
        numbers = {field: sum(getattr(one, field) for one in results) for field in ("examples", "seconds", "searched")}
        told: dict[str, Any] = {field: round(number, 4) for field, number in numbers.items()}
        for field in ("witnesses", "shares"):
            told[field] = {name: count for one in results for name, count in getattr(one, field).items()}
        parts = list(zip(REGISTRY[invariant_id].parts, results, strict=True))
        told["stopped"] = why_stopped([(part.family, one.stopped) for part, one in parts])
        unasked = next(gaps(parts), "")
        message = worst.message or (unasked and f"asked in part only: {unasked}")
        return dataclasses.replace(worst, message=message, **told)


def gaps(parts: list[tuple[Part, Result]]) -> Iterator[str]:
    """Why parts were skipped that this engine should have.

    An engine chooses a bucket for a batch or a graph for a step: that it does not do the other is no gap. Nor is it one
    that no cumulative lengths travel with its tokens.
    """
    asked = {part.family == "dispatch" for part, one in parts if one.outcome != "skip"}
    for part, one in parts:
        if one.outcome == "skip" and (part.family == "dispatch") in asked and "lengths" not in part.needs:
            yield one.message


def why_stopped(told: list[tuple[str, str]]) -> str:
    """Of (family, reason) per part: by family where they do not all say the same."""
    asked = [(family, reason) for family, reason in told if reason]
    alike = len({reason for _, reason in asked}) == 1
    return "; ".join(dict.fromkeys(reason if alike else f"{family}: {reason}" for family, reason in asked))
