"""What the past of a trace still decides, per rank: two traces that end alike here go on alike for every delay.* id.

An engine says what it carries (episode, its delays, free pass). The rest is what the ids count: how long a rank has
been held, by which definition. Counts stop where no id asks further, so there are finitely many states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cpbcg_ref.answers import Verdict
from cpbcg_ref.cases import Pass, RankReport

Key = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Past:
    """One rank between two passes.

    held: consecutive passes, up to the bound, in which it was prefillable and not allowed. delays, since: delays since
    its last release with a reason, and since its last release in a pass in which somebody was prefillable. kept: passes
    in which it was held since then, others are left out. empty, between: passes in which nobody was prefillable, since
    that release and since it was held first. started: when its open wait began, on its own clock.
    """

    held: int = 0
    delays: int = 0
    since: int = 0
    kept: int = 0
    empty: bool = False
    between: bool = False
    started: float | None = None


def after(past: Past, report: RankReport, verdict: Verdict, *, nobody: bool, bound: int) -> Past:
    """The same rank one pass later. nobody: was no rank prefillable in this pass."""
    delayed, waits = not verdict.allow, report.prefillable and not verdict.allow
    opened = report.now_ms if past.started is None else past.started
    told = Past(
        held=min(past.held + 1, bound) if waits else 0,
        delays=0 if verdict.allow and verdict.reason else min(past.delays + delayed, bound),
        started=opened if verdict.episode_open or delayed else None,
        since=past.since,
        kept=past.kept,
        empty=past.empty or nobody,
        between=past.between or (nobody and past.kept > 0),
    )
    if nobody:
        return told
    fresh = {"since": 0, "kept": 0, "empty": False, "between": False}
    counted = {"since": min(past.since + 1, bound), "kept": min(past.kept + 1, bound) if waits else 0}
    return Past(**vars(told) | (fresh if verdict.allow else counted | ({} if waits else {"between": False})))


def pasts(before: Sequence[Past], reports: Pass, verdicts: Sequence[Verdict], *, bound: int) -> tuple[Past, ...]:
    """All ranks one pass later. bound: passes in which a prefillable rank must be allowed once."""
    nobody, ranks = not any(report.prefillable for report in reports), zip(before, reports, verdicts, strict=True)
    return tuple(after(*rank, nobody=nobody, bound=bound) for rank in ranks)


def state(verdicts: Sequence[Verdict], past: Sequence[Past], clocks: Sequence[float], *, limit: float) -> Key:
    """What tells two states apart: start times only by whether the limit has passed since."""
    return tuple(of_rank(*rank, limit) for rank in zip(verdicts, past, clocks, strict=True))


def of_rank(verdict: Verdict, past: Past, now: float, limit: float) -> tuple[object, ...]:
    ran_out = None if past.started is None else now - past.started >= limit
    carried = (verdict.episode_open, verdict.delayed_passes, verdict.free_pass_used)
    return (*carried, past.held, past.delays, past.since, past.kept, past.empty, past.between, ran_out)
