"""What the words of the negotiation mean, read off one gathered table or one list of attempts.

Definitions only: nothing here decides what an engine should answer. An engine's own answers say when its episodes
open, so a policy that opens them elsewhere is judged by its own timers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cpbcg_ref.answers import Raised, Verdict
from cpbcg_ref.cases import Attempt, DelayerConfig, Pass, RankReport

WINDOW = 16  # attempts that max_prefill_bs remembers
FRESH = Verdict(allow=True, reason="", wait_passes=0, episode_open=False, delayed_passes=0, free_pass_used=False)


def status(reports: Pass) -> str:
    """Who is prefillable: "all", "none" or "mixed"."""
    prefillable = {report.prefillable for report in reports}
    return "mixed" if len(prefillable) == 2 else "all" if True in prefillable else "none"


def running_limit(config: DelayerConfig) -> int:
    """Requests that one rank may run: per replica, rounded up, without DP attention."""
    replicas = 1 if config.enable_dp_attention else config.dp_size
    return -(-config.max_running_requests // replicas)


def max_running(reports: Pass) -> int:
    return max(report.running_batch for report in reports)


def max_size(reports: Pass) -> int:
    return max(report.max_prefill_bs for report in reports)


def max_waiting(reports: Pass) -> int:
    return max(report.waiting_queue_len for report in reports)


def free_slots(reports: Pass, config: DelayerConfig) -> int:
    """Slots left on the fullest rank."""
    return running_limit(config) - max_running(reports)


def slot_condition(reports: Pass, config: DelayerConfig) -> bool:
    """May mix ranks: the running of one with the size of another."""
    return free_slots(reports, config) < max_size(reports)


def queue_target(reports: Pass, config: DelayerConfig, *, capacity: int | None = None) -> int:
    """Waiting requests to wait for; 0 when there is nothing to wait for. `capacity` replaces the configured cap."""
    running = max_running(reports)
    if config.queue_min_ratio is None or running <= 0:
        return 0
    caps = (capacity, config.prefill_max_requests, max_size(reports))
    cap = next(cap for cap in caps if cap is not None)
    return min(int(running * config.queue_min_ratio), cap)  # float product, truncated, as specified


def queue_short(reports: Pass, config: DelayerConfig, *, capacity: int | None = None) -> bool:
    """The queue condition without its timers; a target of 0 is never waited for."""
    return max_waiting(reports) < queue_target(reports, config, capacity=capacity)


def queue_may_be_short(reports: Pass, config: DelayerConfig) -> bool:
    """By the larger of both caps ever used, the configured one and the observed size."""
    widest = max(config.prefill_max_requests or 0, max_size(reports))
    return queue_short(reports, config, capacity=widest)


def below_watermark(report: RankReport, config: DelayerConfig) -> bool:
    watermark = config.token_usage_low_watermark
    return report.prefillable and watermark is not None and report.token_usage < watermark


def any_below(reports: Pass, config: DelayerConfig) -> bool:
    return any(below_watermark(report, config) for report in reports)


def ran_out(started: float | None, now: float, limit: float) -> bool:
    """Elapsed >= limit, all in ms, where engines that count in ms and in seconds both say so.

    1250.1 - 750.1 is 500 or a little less, depending on the unit: no engine is judged by that.
    """
    return started is not None and now - started >= limit and (now / 1000.0 - started / 1000.0) * 1000.0 >= limit


@dataclass(frozen=True, kw_only=True)
class Step:
    """One pass of a trace. `started`: per rank, its clock when the episode opened that is open before this pass."""

    number: int  # from 1
    reports: Pass
    verdicts: tuple[Verdict, ...]
    before: tuple[Verdict, ...]  # of the previous pass
    started: tuple[float | None, ...]

    def timers(self, limit: float) -> list[bool]:
        """Per rank: had its timer run out before the gather."""
        return [ran_out(start, report.now_ms, limit) for start, report in zip(self.started, self.reports, strict=True)]


def steps(passes: Sequence[Pass], verdicts: Sequence[tuple[Verdict | Raised, ...]]) -> Iterator[Step]:
    """The trace pass by pass, up to the first pass in which a rank raised."""
    before: tuple[Verdict, ...] = (FRESH,) * len(passes[0])
    started: tuple[float | None, ...] = (None,) * len(passes[0])
    for number, (reports, answers) in enumerate(zip(passes, verdicts, strict=True), start=1):
        said = tuple(verdict for verdict in answers if isinstance(verdict, Verdict))
        if len(said) < len(answers):
            return
        yield Step(number=number, reports=reports, verdicts=said, before=before, started=started)
        before, started = said, tuple(opened(*one) for one in zip(started, reports, said, strict=True))


def opened(started: float | None, report: RankReport, verdict: Verdict) -> float | None:
    """When the episode opened that is open after this pass. A delay is an episode whatever the engine calls it."""
    if not verdict.episode_open and verdict.allow:
        return None
    return report.now_ms if started is None else started


def attempt_size(attempt: Attempt) -> int:
    """Requests that an attempt counts for; 0 for an idle or decode-only pass."""
    if attempt.admitted > 0:
        return attempt.admitted
    return max(1, min(attempt.queue, attempt.free_slots)) if attempt.queue > 0 else 0


def recent_sizes(attempts: Sequence[Attempt]) -> list[int]:
    """Sizes of the last 16 non-empty attempts."""
    return [size for size in map(attempt_size, attempts) if size][-WINDOW:]
