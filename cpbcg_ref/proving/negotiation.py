"""Theorems about the negotiation: the library's `negotiate`, executed on tables and states of any numbers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product, starmap
from typing import Any

import z3

import cpbcg_ref
from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import Share, Truth, number, paths, term, truth
from cpbcg_ref.proving.targets import symbolic_library

POLICIES = ("seed", "hardened")
RANKS = (1, 2)
LIMIT_MS = 500
LARGE = 10**300  # a float holds it; larger numbers are refused
Model = dict[str, int]
CONFIGURED = ("max_delay_passes", "max_running_requests", "prefill_max_requests")
COUNTS = ("running_batch", "max_prefill_bs", "waiting_queue_len")
FLAGS = ("prefillable", "below_watermark", "timer_expired")


@cache
def config_class() -> Any:
    """Numbers without a value have no checksum; all ranks are configured alike here."""
    return type("Config", (symbolic_library().delayer.DelayerConfig,), {"fingerprint": 0})


@dataclass(frozen=True)
class Situation:
    """What the ranks know in one pass: any configuration of some kind, any table, any state.

    ratio: None (no queue condition), 1, or "any". has_cap: `prefill_max_requests` is configured.
    """

    policy: str = "seed"
    ranks: int = 2
    ratio: Any = 1
    has_cap: bool = True
    episode_open: bool = True

    @property
    def given(self) -> list[Any]:
        configured = [z3.And(z3.Int(name) >= 1, z3.Int(name) < LARGE) for name in CONFIGURED]
        counted = [name + str(rank) for rank in range(self.ranks) for name in (*map("{}_".format, COUNTS), "longer_")]
        numbers = [z3.And(z3.Int(name) >= 0, z3.Int(name) < LARGE) for name in counted]
        return [*configured, *numbers, z3.Int("delayed_passes") >= 1]

    def config(self) -> Any:
        own: dict[str, Any] = {name: number(name) for name in CONFIGURED}
        own["prefill_max_requests"] = own["prefill_max_requests"] if self.has_cap else None
        own["queue_min_ratio"] = Share() if self.ratio == "any" else self.ratio
        return config_class()(dp_size=self.ranks, max_delay_ms=LIMIT_MS, policy=self.policy, **own)

    def state(self) -> Any:
        opened = {"delayed_passes": number("delayed_passes"), "started_ms": 0.0} if self.episode_open else {}
        return symbolic_library().DelayerState(free_pass_used=truth("free_pass_used"), **opened)

    def row(self, rank: int, *, longer: bool = False, **changed: Any) -> Any:
        flags = {name: truth(f"{name}_{rank}") for name in FLAGS}
        counts: dict[str, Any] = {name: number(f"{name}_{rank}") for name in COUNTS}
        if longer:
            counts["waiting_queue_len"] += number(f"longer_{rank}")
        return symbolic_library().RankReport(fingerprint=0, **flags | counts | changed)

    def decide(self, *, now_ms: float = 0.0, **changed: Any) -> Any:
        table = [self.row(rank, **changed) for rank in range(self.ranks)]
        return symbolic_library().negotiate(table, self.state(), self.config(), now_ms=now_ms)


SITUATIONS = tuple(starmap(Situation, product(POLICIES, RANKS, (None, "any"), (True, False), (True, False))))


def executed(question: Callable[[Situation], Any], *asked: Situation) -> Iterator[tuple[tuple[Any, ...], Any, str]]:
    """Per way through the code: its conditions, the answer, the situation in words."""
    for one in asked or SITUATIONS:
        for given, answer in paths(partial(question, one), *one.given):
            yield tuple(given), answer, str(one)


def alike(one: Any, other: Any) -> Any:
    """Same verdict and reason, same wait, same next state but for the time at which it began."""
    said = (one.allow, one.reason) == (other.allow, other.reason)
    states = [(one.state.delayed_passes, other.state.delayed_passes), (one.wait_passes, other.wait_passes)]
    states.append((one.state.free_pass_used, other.state.free_pass_used))
    return z3.And(z3.BoolVal(said), *[term(mine) == term(theirs) for mine, theirs in states])


def same_table() -> Iterable[Obligation]:
    for given, (one, other), says in executed(lambda ranks: (ranks.decide(), ranks.decide(now_ms=LIMIT_MS))):
        yield Obligation(given, alike(one, other), says)


def own_clocks() -> Iterable[Obligation]:
    """Each rank reads its own clock after the gather; the episode began at 0."""
    clocks = [z3.Int(f"clock_ms_{rank}") for rank in (0, 1)]

    def two(ranks: Situation) -> Any:
        return [ranks.decide(timer_expired=Truth(clock >= LIMIT_MS)) for clock in clocks]

    for given, (one, other), says in executed(two, Situation()):
        yield Obligation((*given, *[clock >= 0 for clock in clocks]), alike(one, other), says)


def bounded() -> Iterable[Obligation]:
    for given, answer, says in executed(Situation.decide):
        yield Obligation(given, z3.Or(z3.BoolVal(answer.allow), counted(answer, at_most=-1)), says)


def one_delay_less() -> Iterable[Obligation]:
    for given, answer, says in executed(Situation.decide, Situation()):
        yield Obligation(given, z3.Or(z3.BoolVal(answer.allow), counted(answer, at_most=-2)), says)


def counted(answer: Any, *, at_most: int) -> Any:
    delays = term(answer.state.delayed_passes)
    before = z3.Or(delays == 1, delays == z3.Int("delayed_passes") + 1)
    return z3.And(before, delays <= z3.Int("max_delay_passes") + at_most)


def longer_queue() -> Iterable[Obligation]:
    for given, (short, long), says in executed(lambda ranks: (ranks.decide(), ranks.decide(longer=True))):
        yield Obligation(given, z3.BoolVal(long.allow or not short.allow), says)


def queue_ignored() -> Iterable[Obligation]:
    for given, (short, long), says in executed(lambda ranks: (ranks.decide(), ranks.decide(longer=True)), Situation()):
        yield Obligation(given, z3.BoolVal(long.allow == short.allow), says)


def again(model: Model, *, clock_ms: int | None = None, longer: bool = False) -> Any:
    """The reference's decision on the numbers of a model of `Situation()`. What the model leaves open is 0, or 1 where
    0 is not legal. A clock stands for the timers of both ranks."""
    configured: dict[str, Any] = {name: model.get(name, 1) for name in CONFIGURED}
    config = cpbcg_ref.DelayerConfig(dp_size=2, max_delay_ms=LIMIT_MS, queue_min_ratio=1, **configured)
    rows = []
    for rank in (0, 1):
        told: dict[str, Any] = {name: bool(model.get(f"{name}_{rank}", 0)) for name in FLAGS}
        told |= {name: model.get(f"{name}_{rank}", 0) for name in COUNTS}
        told["waiting_queue_len"] += model.get(f"longer_{rank}", 0) if longer else 0
        told["timer_expired"] = told["timer_expired"] if clock_ms is None else clock_ms >= LIMIT_MS
        rows.append(cpbcg_ref.RankReport(fingerprint=config.fingerprint, **told))
    opened: dict[str, Any] = {"delayed_passes": model.get("delayed_passes", 1), "started_ms": 0.0}
    state = cpbcg_ref.DelayerState(free_pass_used=bool(model.get("free_pass_used", 0)), **opened)
    return cpbcg_ref.negotiate(rows, state, config, now_ms=0.0)


def clocks_differ(model: Model) -> str:
    clocks = [model.get(f"clock_ms_{rank}", 0) for rank in (0, 1)]
    one, other = (again(model, clock_ms=clock).reason for clock in clocks)
    told = f"clocks {clocks[0]} and {clocks[1]}, limit {LIMIT_MS} ms: rank 0 {one}, rank 1 {other}"
    return told if one != other else ""


def last_delay(model: Model) -> str:
    delays = again(model).state.delayed_passes
    bound = model.get("max_delay_passes", 1)
    return f"delay {delays} at max_delay_passes {bound}" if delays == bound - 1 else ""


def queue_matters(model: Model) -> str:
    short, long = (again(model, longer=more).reason for more in (False, True))
    return f"{short}, with a longer queue {long}" if short != long else ""


THEOREMS = (
    Theorem(
        name="negotiation-agrees",
        statement="Ranks that see the same table and state decide alike, whatever their clocks show (both policies, "
        "1 and 2 ranks).",
        claim=same_table,
        wrong="Two clocks that are read after the gather agree.",
        control=own_clocks,
        replay=clocks_differ,
        source="sglang 0.5.21",
    ),
    Theorem(
        name="bounded-passes",
        statement="Each delay is counted and the count stays below max_delay_passes, so a rank that is prefillable in "
        "max(1, max_delay_passes) consecutive passes is allowed (both policies, 1 and 2 ranks).",
        claim=bounded,
        wrong="One pass less is enough.",
        control=one_delay_less,
        replay=last_delay,
        source="sglang#32880",
    ),
    Theorem(
        name="queue-monotone",
        statement="A longer queue never turns allow into delay (both policies, 1 and 2 ranks, any ratio).",
        claim=longer_queue,
        wrong="A longer queue changes nothing.",
        control=queue_ignored,
        replay=queue_matters,
    ),
)
