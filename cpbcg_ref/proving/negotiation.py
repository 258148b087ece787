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
LARGE = 10**300  # a float holds it; larger numbers are refused
Model = dict[str, int]
CONFIGURED = ("max_delay_passes", "max_running_requests", "prefill_max_requests")
COUNTS = ("running_batch", "max_prefill_bs", "waiting_queue_len")
TIMES = ("max_delay_ms", "started_ms", "now_ms_0", "now_ms_1")  # whole milliseconds
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
        counted = [f"{name}_{rank}" for rank in range(self.ranks) for name in (*COUNTS, "longer")]
        numbers = [z3.And(z3.Int(name) >= 0, z3.Int(name) < LARGE) for name in (*CONFIGURED, *TIMES, *counted)]
        return [*numbers, *[z3.Int(name) >= 1 for name in (*CONFIGURED[1:], "delayed_passes")]]

    def config(self) -> Any:
        own: dict[str, Any] = {name: number(name) for name in CONFIGURED}
        own["prefill_max_requests"] = own["prefill_max_requests"] if self.has_cap else None
        own["queue_min_ratio"] = Share() if self.ratio == "any" else self.ratio
        own["max_delay_ms"] = number("max_delay_ms")
        return config_class()(dp_size=self.ranks, policy=self.policy, **own)

    def state(self) -> Any:
        opened = {name: number(name) for name in ("delayed_passes", "started_ms")} if self.episode_open else {}
        return symbolic_library().DelayerState(free_pass_used=truth("free_pass_used"), **opened)

    @property
    def delays_before(self) -> Any:
        return z3.Int("delayed_passes") if self.episode_open else z3.IntVal(0)

    def row(self, rank: int, *, longer: bool = False, **changed: Any) -> Any:
        flags = {name: truth(f"{name}_{rank}") for name in FLAGS}
        counts: dict[str, Any] = {name: number(f"{name}_{rank}") for name in COUNTS}
        if longer:
            counts["waiting_queue_len"] += number(f"longer_{rank}")
        return symbolic_library().RankReport(fingerprint=0, **flags | counts | changed)

    def decide(self, *, clock: int = 0, **changed: Any) -> Any:
        """What a rank decides by its clock."""
        table = [self.row(rank, **changed) for rank in range(self.ranks)]
        return symbolic_library().negotiate(table, self.state(), self.config(), now_ms=number(f"now_ms_{clock}"))


SITUATIONS = tuple(starmap(Situation, product(POLICIES, RANKS, (None, "any"), (True, False), (True, False))))


def executed(
    question: Callable[[Situation], Any], *asked: Situation
) -> Iterator[tuple[tuple[Any, ...], Any, Situation]]:
    """Per way through the code: its conditions, the answer, the situation."""
    for one in asked or SITUATIONS:
        for given, answer in paths(partial(question, one), *one.given):
            yield tuple(given), answer, one


def alike(one: Any, other: Any) -> Any:
    """Same verdict and reason, same wait, same next state but for the time at which it began."""
    said = (one.allow, one.reason) == (other.allow, other.reason)
    states = [(one.state.delayed_passes, other.state.delayed_passes), (one.wait_passes, other.wait_passes)]
    states.append((one.state.free_pass_used, other.state.free_pass_used))
    return z3.And(z3.BoolVal(said), *[term(mine) == term(theirs) for mine, theirs in states])


def same_table() -> Iterable[Obligation]:
    for given, (one, other), ranks in executed(lambda ranks: (ranks.decide(clock=0), ranks.decide(clock=1))):
        yield Obligation(given, alike(one, other), str(ranks))


def own_clocks() -> Iterable[Obligation]:
    """Each rank reads its own clock after the gather."""
    ran_out = [z3.Int(f"now_ms_{rank}") - z3.Int("started_ms") >= z3.Int("max_delay_ms") for rank in (0, 1)]

    def two(ranks: Situation) -> Any:
        return [ranks.decide(clock=rank, timer_expired=Truth(ran_out[rank])) for rank in (0, 1)]

    for given, (one, other), ranks in executed(two, Situation()):
        yield Obligation(given, alike(one, other), str(ranks))


def bounded() -> Iterable[Obligation]:
    for given, answer, ranks in executed(Situation.decide):
        yield Obligation(given, allowed_or_counted(answer, ranks), str(ranks))


def one_delay_less() -> Iterable[Obligation]:
    for given, answer, ranks in executed(Situation.decide, Situation()):
        yield Obligation(given, allowed_or_counted(answer, ranks, fewer=1), str(ranks))


def allowed_or_counted(answer: Any, ranks: Situation, *, fewer: int = 0) -> Any:
    delays = term(answer.state.delayed_passes)
    below_bound = delays <= z3.Int("max_delay_passes") - 1 - fewer
    return z3.Or(z3.BoolVal(answer.allow), z3.And(delays == ranks.delays_before + 1, below_bound))


def longer_queue() -> Iterable[Obligation]:
    for given, (short, long), ranks in executed(lambda ranks: (ranks.decide(), ranks.decide(longer=True))):
        yield Obligation(given, z3.BoolVal(long.allow or not short.allow), str(ranks))


def queue_ignored() -> Iterable[Obligation]:
    asked = executed(lambda ranks: (ranks.decide(), ranks.decide(longer=True)), Situation())
    for given, (short, long), ranks in asked:
        yield Obligation(given, z3.BoolVal(long.allow == short.allow), str(ranks))


def again(model: Model, *, clock_ms: int | None = None, longer: bool = False) -> Any:
    """The reference's decision on the numbers of a model of `Situation()`; a clock stands for the timers of both ranks.
    The model says what the number must be wherever one is not free."""
    configured: dict[str, Any] = {name: model[name] for name in CONFIGURED}
    configured["max_delay_ms"] = model["max_delay_ms"]
    config = cpbcg_ref.DelayerConfig(dp_size=2, queue_min_ratio=1, **configured)
    rows = []
    for rank in (0, 1):
        told: dict[str, Any] = {name: bool(model.get(f"{name}_{rank}", 0)) for name in FLAGS}
        told |= {name: model[f"{name}_{rank}"] for name in COUNTS}
        told["waiting_queue_len"] += model[f"longer_{rank}"] if longer else 0
        if clock_ms is not None:
            told["timer_expired"] = clock_ms - model["started_ms"] >= model["max_delay_ms"]
        rows.append(cpbcg_ref.RankReport(fingerprint=config.fingerprint, **told))
    opened: dict[str, Any] = {name: model[name] for name in ("delayed_passes", "started_ms")}
    state = cpbcg_ref.DelayerState(free_pass_used=bool(model.get("free_pass_used", 0)), **opened)
    return cpbcg_ref.negotiate(rows, state, config, now_ms=0.0)


def clocks_differ(model: Model) -> str:
    clocks = [model[f"now_ms_{rank}"] for rank in (0, 1)]
    one, other = (again(model, clock_ms=clock) for clock in clocks)
    began = f"an episode that began at {model['started_ms']} ms, limit {model['max_delay_ms']} ms"
    told = f"{began}, clocks at {clocks[0]} and {clocks[1]} ms: rank 0 {one.reason}, rank 1 {other.reason}"
    if one.state.free_pass_used != other.state.free_pass_used:
        told += ", and one of them has used its free pass"
    return told if one != other else ""


def last_delay(model: Model) -> str:
    delays, bound = again(model).state.delayed_passes, model["max_delay_passes"]
    return f"delay {delays} at max_delay_passes {bound}" if delays == bound - 1 else ""


def queue_matters(model: Model) -> str:
    short, long = (again(model, longer=more).reason for more in (False, True))
    return f"{short}, with a longer queue {long}" if short != long else ""


THEOREMS = (
    Theorem(
        name="negotiation-agrees",
        statement="Ranks that see the same table and state decide alike, whatever their clocks show, in whole ms "
        "(both policies, tables of 1 and 2 ranks).",
        claim=same_table,
        wrong="Two clocks that are read after the gather agree.",
        control=own_clocks,
        replay=clocks_differ,
        source="sglang 0.5.21",
    ),
    Theorem(
        name="bounded-passes",
        statement="Each delay is counted and the count stays below max_delay_passes, so a rank that is prefillable in "
        "max(1, max_delay_passes) consecutive passes is allowed (both policies, tables of 1 and 2 ranks).",
        claim=bounded,
        wrong="One pass less is enough.",
        control=one_delay_less,
        replay=last_delay,
        source="sglang#32880",
    ),
    Theorem(
        name="queue-monotone",
        statement="A longer queue, on any of the ranks, never turns allow into delay (both policies, tables of 1 and 2 "
        "ranks, any ratio).",
        claim=longer_queue,
        wrong="A longer queue changes nothing.",
        control=queue_ignored,
        replay=queue_matters,
    ),
)
