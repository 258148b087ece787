"""Check invariants on one engine in this process: families are swept once, results are per invariant."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import Deployment
from cpbcg_ref.checking.family import FamilyRun, PartRun, part_of
from cpbcg_ref.checking.profiles import Profile
from cpbcg_ref.checking.results import OUTCOMES, Counterexample, Result
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.pictures import picture
from cpbcg_ref.strategies import cases_for


@dataclasses.dataclass(kw_only=True)
class Checker:
    """One engine under one profile and seed. Parts that were judged are kept, so asking twice costs nothing.

    >>> from cpbcg_ref.checking.profiles import PROFILES
    >>> from cpbcg_ref.engines.reference import Reference
    >>> checker = Checker(engine=Reference(), target="reference", profile=PROFILES["dev"], seed=0)
    >>> checker.check("select.pure").outcome
    'pass'
    """

    engine: Any
    target: str
    profile: Profile
    seed: int = 0
    deployment: Deployment | None = None
    on_example: Callable[[str], None] = lambda family: None
    executed: set[str] = dataclasses.field(default_factory=set)
    parts: dict[str, PartRun] = dataclasses.field(default_factory=dict)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)

    def check(self, invariant_id: str) -> Result:
        """Verdict on one invariant; its families are swept for all their invariants at once."""
        for part in REGISTRY[invariant_id].parts:
            self.sweep(part.family)
        return self.result(invariant_id)

    def sweep(self, family: str, ids: Iterable[str] | None = None) -> None:
        """Judge every part of this family (or those of `ids`) unless that was done."""
        keys = [key for key in parts_of(family, ids) if key not in self.parts | self.skipped]
        reasons = {key: self.why_not(family, key) for key in keys}
        self.skipped |= {key: reason for key, reason in reasons.items() if reason}
        if keys := [key for key in keys if not reasons[key]]:
            strategy = cases_for(family, self.engine.contract, deployment=self.deployment)
            run = FamilyRun(
                engine=self.engine,
                family=family,
                strategy=strategy,
                profile=self.profile if self.deployment is None else dataclasses.replace(self.profile, rounds=1),
                seed=self.seed,
                on_example=self.on_example,
                executed=self.executed,
            )
            self.parts |= {part.key: part for part in run.run(keys)}

    def why_not(self, family: str, key: str) -> str | None:
        """Why the engine cannot be asked about this part, or None."""
        needed = (FAMILIES[family].capability, *part_of(key).needs)
        return next(filter(None, (missing(self.engine, capability) for capability in needed)), None)

    def result(self, invariant_id: str) -> Result:
        keys = [key_of(invariant_id, index) for index in range(len(REGISTRY[invariant_id].parts))]
        results = [self.part_result(invariant_id, key) for key in keys]
        worst = min(results, key=lambda result: OUTCOMES.index(result.outcome))
        witnesses: dict[str, int] = {}
        for result in results:
            witnesses |= result.witnesses
        return dataclasses.replace(
            worst,
            examples=sum(result.examples for result in results),
            seconds=round(sum(result.seconds for result in results), 4),
            witnesses=witnesses,
        )

    def part_result(self, invariant_id: str, key: str) -> Result:
        level = REGISTRY[invariant_id].level
        if key in self.skipped:
            return Result(invariant=invariant_id, level=level, outcome="skip", message=self.skipped[key])
        run = self.parts[key]
        result = Result(
            invariant=invariant_id,
            level=level,
            outcome="pass",
            examples=run.examples,
            seconds=run.seconds,
            witnesses=run.witnesses,
        )
        if run.error:
            return dataclasses.replace(result, outcome="error", message=run.error)
        if run.sentence:
            return dataclasses.replace(
                result,
                outcome="fail",
                message=run.sentence,
                counterexample=self.counterexample(run),
                reproduce=self.reproduce(invariant_id),
            )
        if not run.examples or (run.unmet and self.deployment is None):
            return dataclasses.replace(result, outcome="unwitnessed", message=unwitnessed(run))
        # What a pinned configuration excludes cannot come up; it is said and does not spoil the verdict.
        return dataclasses.replace(result, message=unwitnessed(run) if run.unmet else "")

    def counterexample(self, run: PartRun) -> Counterexample:
        case = {"kind": type(run.case).__name__} | dataclasses.asdict(run.case)
        return Counterexample(
            case=case, python=as_python(run.case), picture=picture(run.case, run.seen, self.engine.contract)
        )

    def reproduce(self, invariant_id: str) -> str:
        return f"cpbcg check {self.target} --select {invariant_id} --profile {self.profile.name} --seed {self.seed}"


def unwitnessed(run: PartRun) -> str:
    if not run.examples:
        return "no case could be put to the engine: every one was refused"
    return f"never came up in {run.examples} examples: {'; '.join(run.unmet)}"


def as_python(value: Any) -> str:
    """The shortest Python that rebuilds a case: fields at their default are left out.

    >>> from cpbcg_ref.cases import Batch
    >>> as_python((Batch(lengths=(9, 9), prefixes=(0, 0)),))
    '(Batch(lengths=(9, 9), prefixes=(0, 0)),)'
    """
    if dataclasses.is_dataclass(value):
        fields = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        told = [f"{field.name}={as_python(own)}" for field, own in fields if own != field.default]
        return f"{type(value).__name__}({', '.join(told)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(as_python, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def key_of(invariant_id: str, index: int) -> str:
    return f"{invariant_id}#{index}"


def parts_of(family: str, ids: Iterable[str] | None = None) -> list[str]:
    """Key of every part of the registry (or of `ids`) that this family can judge."""
    return [
        key_of(name, index)
        for name in (REGISTRY if ids is None else ids)
        for index, part in enumerate(REGISTRY[name].parts)
        if part.family == family
    ]
