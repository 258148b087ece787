"""Put saved failures to an engine again: FIXED, FAILED, or ERROR where there is no verdict."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import BadLayoutCase, CaptureCase, DispatchCase, LayoutCase, ReplayCase
from cpbcg_ref.checking.answering import Hangs, begin, raised_at
from cpbcg_ref.checking.saved import Saved, read
from cpbcg_ref.checking.single import askable, judge_case
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import CpbcgError, InvalidInput
from cpbcg_ref.invariants.judging import shards
from cpbcg_ref.invariants.pictures import picture

FIXED, FAILED, ERROR = "FIXED", "FAILED", "ERROR"
Tell = Callable[[str], None]
_obtained: dict[str, Any] = {}  # in a worker, by target: the engine, or why there is none


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """message: the violation, or why there is no verdict. Of an unreadable file only the id, its name, is known."""

    id: str
    outcome: str
    invariant: str = ""
    level: str = ""
    target: str = ""
    engine: str = ""
    version: str = ""
    message: str = ""
    picture: str = ""

    def __post_init__(self) -> None:
        assert self.outcome in (FIXED, FAILED, ERROR), self.outcome
        assert bool(self.message) == (self.outcome != FIXED), f"{self.outcome} with message {self.message!r}"


def exit_code(replayed: Iterable[Replayed], *, strict: bool = False) -> int:
    """First that applies: 1 a MUST fails still (with strict a SHOULD too), 2 an error, 0."""
    counted = {one.outcome for one in replayed if strict or one.outcome == ERROR or one.level == "MUST"}
    return 1 if FAILED in counted else 2 if ERROR in counted else 0


def opened(paths: Iterable[Path]) -> tuple[list[Saved], list[Replayed]]:
    """What the files hold, by invariant and id, and an error per file that cannot be read."""
    found, broken = [], []
    for path in paths:
        try:
            found.append(read(path))
        except InvalidInput as problem:
            broken.append(Replayed(id=path.stem, outcome=ERROR, message=str(problem)))
    return sorted(found, key=lambda one: (one.invariant, one.id)), broken


def replay(
    failures: Sequence[Saved], *, target: str | None = None, allow_unpinned: bool = False, tell: Tell | None = None
) -> Iterator[Replayed]:
    """A verdict per failure on `target`, or on the one it was found on; those of one target follow each other."""
    how: dict[str, Any] = {"allow_unpinned": allow_unpinned, "tell": tell}
    for place in dict.fromkeys(target or one.target for one in failures):
        yield from in_worker([one for one in failures if target or one.target == place], target=place, **how)


def in_worker(failures: Sequence[Saved], *, target: str, **how: Any) -> Iterator[Replayed]:
    """In a process of the target's own, in another one after a case that ended it."""
    waiting = list(failures)
    while waiting:
        with ProcessPoolExecutor(1, initializer=begin) as pool:
            while waiting:
                one = waiting.pop(0)
                try:
                    yield pool.submit(replay_one, one, target=target, **how).result()
                except BrokenProcessPool:
                    yield Replayed(**facts(one, target), outcome=ERROR, message="the engine ended the worker process")
                    break


def facts(one: Saved, target: str) -> dict[str, Any]:
    return {"id": one.id, "invariant": one.invariant, "level": one.level, "target": target}


def replay_one(one: Saved, *, target: str, allow_unpinned: bool, tell: Tell | None) -> Replayed:
    """In this process."""
    answer = partial(Replayed, **facts(one, target))
    try:
        engine = obtained(target, allow_unpinned, tell)
        answer = partial(answer, engine=engine.name, version=engine.version)
        askable(engine, one.invariant, one.case)  # raises
        if reason := never_asked(one.case, engine.contract):
            raise CpbcgError(f"no check asks it this case: {reason}")
        judged = judge_case(engine, one.invariant, one.case)
        if judged.sentence is None:
            return answer(outcome=FIXED)
        shown = picture(one.case, judged.seen, engine.contract)
        return answer(outcome=FAILED, message=judged.sentence, picture=shown)
    except CpbcgError as problem:
        return answer(outcome=ERROR, message=str(problem))
    except (Exception, SystemExit, Hangs) as problem:  # of the adapter: the engine's own are answers
        at = raised_at(problem)
        raised = f"{type(problem).__name__}: {problem}".split("\n")[0]
        return answer(outcome=ERROR, message=f"no verdict, {raised} ({Path(at.filename).name}:{at.lineno})")


def obtained(target: str, allow_unpinned: bool, tell: Tell | None) -> Any:
    """The engine. A target that cannot be obtained is not tried again for every failure."""
    if target not in _obtained:
        try:
            _obtained[target] = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
        except CpbcgError as problem:
            _obtained[target] = problem
    if isinstance(_obtained[target], CpbcgError):
        raise _obtained[target]
    return _obtained[target]


def never_asked(case: Any, contract: Contract) -> str:
    """Why no check puts this case to an engine with this contract, "" if one may: an answer would prove nothing."""
    if isinstance(case, DispatchCase):
        return never_dispatched(case, contract)
    group = case.server if isinstance(case, (ReplayCase, CaptureCase)) else case
    if not isinstance(case, (ReplayCase, CaptureCase, LayoutCase, BadLayoutCase)):
        return ""
    if group.cp_size not in contract.cp_sizes:
        return f"it supports groups of {', '.join(map(str, contract.cp_sizes))} ranks, not of {group.cp_size}"
    if group.cp_size > 1 and group.strategy not in contract.strategies:
        return f"it has no layout {group.strategy}"
    if group.cp_size > 1 and isinstance(case, CaptureCase) and group.strategy not in contract.graph_strategies:
        return f"it captures no graphs for {group.strategy}"
    if isinstance(case, LayoutCase) and not shards(case.batch.lengths, case.cp_size, case.strategy, contract):
        return f"it does not shard lengths {list(case.batch.lengths)} on {case.cp_size} ranks"
    return ""


def never_dispatched(case: DispatchCase, contract: Contract) -> str:
    how, each = contract.dispatchers.get(case.setup), case.tokens_per_decode
    if how is None:
        return f"it has no dispatcher {case.setup!r}, it has {', '.join(contract.dispatchers) or 'none'}"
    rules = {
        f"its decodes never have {each} tokens": each not in how.tokens_per_decode,
        f"its buckets are multiples of {each}": how.multiples and any(size % each for size in case.capture_num_tokens),
        "its largest bucket is its most requests": how.even and case.capture_num_tokens[-1] != case.max_requests,
        "its callers choose no modes": not how.choosable and bool(case.allowed or case.excluded),
    }
    return next((reason for reason, broken in rules.items() if broken), "")
