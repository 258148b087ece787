"""Delayers that lose count: the bound, the timer, what is kept from pass to pass, and what is reported of it."""

from dataclasses import replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import ReferenceDelayers
from cpbcg_ref.faults.delaying import (
    ALL,
    COUNTED,
    FREELY,
    LOW,
    NEITHER,
    NOBODY,
    STARTED,
    TIMED_OUT,
    TIMEOUT,
    TIMER,
    WAITED,
    delaying,
    wrong,
)

ANY_EXPIRED = "any(row.timer_expired for row in table)"

wrong(
    "bound-one-late",
    "one pass more is delayed than the bound allows",
    TIMEOUT,
    TIMEOUT.removesuffix(" - 1"),
    must="delay.bounded-passes",
    smallest=2,
)
wrong(
    "bound-one-early",
    "one pass less is delayed than the bound says",
    TIMEOUT,
    TIMEOUT.replace("- 1", "- 2"),
    must="delay.reason",
    smallest=2,
)
wrong(
    "bound-0-unset",
    "a bound of 0 counts as not configured, and the default holds",
    TIMEOUT,
    TIMEOUT.replace("config.max_delay_passes", "(config.max_delay_passes or 30)"),
    must="delay.bounded-passes",
    smallest=2,
)
wrong(
    "bound-1-delays",
    "a bound of 1 still delays a pass",
    TIMEOUT,
    TIMEOUT.replace("config.max_delay_passes", "max(config.max_delay_passes, 2)"),
    must="delay.bounded-passes",
    smallest=2,
)
wrong(
    "count-restarts-in-mixed",
    "a mixed pass counts as the first delay whatever went before",
    COUNTED,
    f"{COUNTED} if {ALL} else 1",
    must="delay.bounded-passes",
    smallest=6,
)


@delaying("own-count", must="delay.agree", smallest=2)
class CountsOwnDelays(ReferenceDelayers):
    """A rank that is not prefillable itself does not count the delay."""

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        decision = super().decide(table, state, report)
        held = not decision.allow and not report.prefillable
        return replace(decision, state=state) if held else decision


wrong(
    "timer-strictly-above",
    "a timer that stands at its limit has not run out",
    TIMER,
    TIMER.replace(">=", ">"),
    must="delay.bounded-time",
    smallest=3,
)
wrong(
    "timer-from-the-second-delay",
    "a timer is looked at from the second delay on",
    TIMER,
    TIMER.replace("state.started_ms is not None", "state.delayed_passes > 1"),
    must="delay.bounded-time",
    smallest=3,
)
wrong(
    "timer-restarts",
    "every delay starts the timer anew",
    STARTED,
    "started_ms = now_ms",
    must="delay.bounded-time",
    smallest=4,
)
wrong(
    "timer-ignored",
    "the queue condition holds however much time has gone by",
    f"or {ANY_EXPIRED}",
    "",
    must="delay.bounded-time",
    smallest=3,
)
wrong(
    "timer-times-out",
    "what a timer releases is reported as a timeout in passes",
    NEITHER,
    f'{NEITHER}"wait_timeout" if {ANY_EXPIRED} else ',
    must="delay.reason",
    smallest=3,
)
wrong(
    "timer-ends-every-delay",
    "a timer ends mixed and slot delays too, reported as a timeout in passes",
    TIMEOUT,
    f"{TIMEOUT} or {ANY_EXPIRED}",
    must="delay.reason",
    smallest=3,
)
wrong(
    "free-pass-after-timeout",
    "a timeout gives the free pass back",
    TIMED_OUT,
    TIMED_OUT.replace("state)", "replace(state, free_pass_used=False))"),
    must="delay.skip-first",
    smallest=2,
)
wrong(
    "free-pass-after-nobody",
    "a pass in which nobody is prefillable gives the free pass back",
    NOBODY,
    'return release("", DelayerState())',
    must="delay.skip-first",
    smallest=2,
)
wrong(
    "free-pass-by-watermark",
    "a release by the watermark uses up the free pass",
    f'{LOW}"token_watermark", state)',
    f'{LOW}"token_watermark", replace(state, free_pass_used=True))',
    must="delay.skip-first",
    smallest=1,
)
wrong(
    "free-pass-in-mixed",
    "a mixed pass may take the free pass",
    "        if not state.free_pass_used:",
    "    if not state.free_pass_used:",
    must="delay.skip-first",
    smallest=2,
)
wrong(
    "free-pass-without-reason",
    "the free pass is taken by a pass that there was no reason to hold",
    f"{NEITHER}freely, state)",
    f"{NEITHER}freely, replace(state, free_pass_used=True))",
    must="delay.skip-first",
    smallest=1,
)
wrong(
    "wait-one-more",
    "the reported wait counts the pass that ends it",
    WAITED,
    WAITED.replace(")", " + 1)"),
    must="delay.reason",
    smallest=1,
)
wrong(
    "wait-forgotten-by-watermark",
    "a release by the watermark reports no wait",
    f'{LOW}"token_watermark", state)',
    f'{LOW}"token_watermark", replace(state, delayed_passes=0, started_ms=None))',
    must="delay.reason",
    smallest=3,
)
wrong(
    "reasons-swapped",
    "no_wait and wait_success are swapped",
    FREELY,
    '"no_wait" if state.delayed_passes else "wait_success"',
    must="delay.reason",
    smallest=1,
)
wrong(
    "success-unknown",
    "a wait that was worth it is reported as none",
    FREELY,
    '"no_wait"',
    must="delay.reason",
    smallest=3,
)
wrong(
    "timeout-called-success",
    "a wait that was given up is reported as worth it",
    TIMED_OUT,
    TIMED_OUT.replace("timeout", "success"),
    must="delay.reason",
    smallest=2,
)
wrong(
    "no-reason",
    "a pass that nothing holds is let go without a reason",
    FREELY,
    FREELY.replace("no_wait", ""),
    must="delay.reason",
    smallest=1,
)
wrong(
    "delay-allowed",
    "a pass is reported as delayed and let go",
    "return Decision(allow=False",
    "return Decision(allow=True",
    must="delay.reason",
    smallest=2,
)
wrong(
    "wait-told-again",
    "a release does not close the episode: the next one reports the same wait once more",
    "closed = DelayerState(free_pass_used=state.free_pass_used)",
    "closed = state",
    must="delay.reason",
    smallest=4,
)
