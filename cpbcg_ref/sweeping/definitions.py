"""The MUST ids of one pass, written down a second time, straight from their statements.

The checkers of the registry judge whole traces. These look at one pass and at what is left of its past, share no code
with them, and have to say the same.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from cpbcg_ref.answers import Verdict
from cpbcg_ref.cases import DelayerConfig, Pass
from cpbcg_ref.sweeping.monitors import Past


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One pass: what the ranks reported, what each was told, what it was told the pass before, and its past."""

    config: DelayerConfig
    reports: Pass
    verdicts: tuple[Verdict, ...]
    before: tuple[Verdict, ...]
    past: tuple[Past, ...]
    now: tuple[Past, ...]  # after this pass

    @property
    def everybody(self) -> bool:
        return all(report.prefillable for report in self.reports)

    @property
    def delayed(self) -> bool:
        return not all(verdict.allow for verdict in self.verdicts)

    @property
    def low(self) -> bool:
        mark = self.config.token_usage_low_watermark
        return mark is not None and any(r.prefillable and r.token_usage < mark for r in self.reports)

    @property
    def slots_short(self) -> bool:
        """Free slots on the fullest rank, whole numbers rounded up per replica, against the largest size."""
        config = self.config
        most = config.max_running_requests
        limit = most if config.enable_dp_attention else (most + config.dp_size - 1) // config.dp_size
        return limit - max(r.running_batch for r in self.reports) < max(r.max_prefill_bs for r in self.reports)

    def queue_short(self, cap: int) -> bool:
        wanted = int(max(r.running_batch for r in self.reports) * (self.config.queue_min_ratio or 0))
        return max(r.waiting_queue_len for r in self.reports) < min(wanted, cap)

    @property
    def has_reason(self) -> bool:
        """To wait where everybody is prefillable, by the larger of the caps that there are."""
        cap = max(self.config.prefill_max_requests or 0, *(r.max_prefill_bs for r in self.reports))
        return self.slots_short or self.queue_short(cap)


def differ(turn: Turn) -> bool:
    return len(set(turn.verdicts)) > 1


def held_too_long(turn: Turn) -> bool:
    bound = max(1, turn.config.max_delay_passes)
    return any(one.held >= bound for one in turn.now)


def held_past_the_limit(turn: Turn) -> bool:
    limit, ranks = turn.config.max_delay_ms, zip(turn.past, turn.reports, strict=True)
    ran_out = any(one.started is not None and report.now_ms - one.started >= limit for one, report in ranks)
    return turn.delayed and turn.everybody and not turn.slots_short and ran_out


def delayed_for_nothing(turn: Turn) -> bool:
    nobody = not any(report.prefillable for report in turn.reports)
    return turn.delayed and (nobody or (turn.everybody and not turn.has_reason))


def against_the_watermark(turn: Turn) -> bool:
    said = any(verdict.reason == "token_watermark" for verdict in turn.verdicts)
    return (turn.low and turn.delayed) or (said and not turn.low)


def wrong_free_pass(turn: Turn) -> bool:
    before, now = ([v.free_pass_used for v in verdicts] for verdicts in (turn.before, turn.verdicts))
    given_back = any(was and not used for was, used in zip(before, now, strict=True))
    allowed = len(set(now)) == 1 and turn.everybody and not turn.low and turn.has_reason
    return given_back or (before != now and not allowed)


def wrong_reason(turn: Turn) -> bool:
    ranks = zip(turn.verdicts, turn.before, turn.past, strict=True)
    return any(reason_is_wrong(turn, verdict, before, past) for verdict, before, past in ranks)


def reason_is_wrong(turn: Turn, verdict: Verdict, before: Verdict, past: Past) -> bool:
    waited, so_far = verdict.wait_passes, before.delayed_passes if before.episode_open else 0
    fits = {
        "": not any(report.prefillable for report in turn.reports),
        "no_wait": waited == 0,
        "wait_success": waited >= 1,
        "wait_timeout": waited == max(turn.config.max_delay_passes - 1, 0, so_far),
        "token_watermark": waited == so_far,
        "delay": True,
    }
    told = verdict.allow == (verdict.reason != "delay")
    counted = past.delays < max(1, turn.config.max_delay_passes)  # an engine that overran its bound has had more
    return not (told and fits.get(verdict.reason, False)) or (verdict.allow and counted and waited > past.delays)


DEFINITIONS: dict[str, Callable[[Turn], bool]] = {
    "delay.agree": differ,
    "delay.bounded-passes": held_too_long,
    "delay.bounded-time": held_past_the_limit,
    "delay.justified": delayed_for_nothing,
    "delay.watermark": against_the_watermark,
    "delay.skip-first": wrong_free_pass,
    "delay.reason": wrong_reason,
}


def broken(turn: Turn, names: Collection[str]) -> list[str]:
    """Which of these ids the pass breaks."""
    return [name for name, holds_not in DEFINITIONS.items() if name in names and holds_not(turn)]
