"""Checkers of the delay.* invariants on pairs of last passes and on lists of attempts, each with its witnesses."""

from itertools import pairwise
from typing import Any

from cpbcg_ref.answers import AttemptsSeen, LastPassSeen, Raised, Verdict
from cpbcg_ref.cases import AttemptsCase, LastPassCase, Pass
from cpbcg_ref.invariants.delay_trace import all_with, raised_at
from cpbcg_ref.oracles import passes as table

Answers = tuple[Verdict | Raised, ...]


def raised(seen: LastPassSeen) -> str | None:
    return raised_at((*seen.history, seen.last)) or raised_at((*seen.history, seen.other_last))


def said(answers: Answers) -> list[Verdict]:
    return [answer for answer in answers if isinstance(answer, Verdict)]


def differing(case: LastPassCase) -> set[str]:
    """Fields in which the two last passes differ."""
    pairs = list(zip(case.last, case.other_last, strict=True))
    return {name for a, b in pairs for name in vars(a) if getattr(a, name) != getattr(b, name)}


def waits_for_its_cap(case: LastPassCase, seen: LastPassSeen, _: Any) -> str | None:
    """delay.target-capacity, where the slot condition gives no reason to wait."""
    problem, both = raised(seen), (case.last, case.other_last)
    if problem or any(table.status(p) != "all" or table.slot_condition(p, case.config) for p in both):
        return problem
    if case.config.prefill_max_requests is None:
        return above_observed(case.last, seen.last) or above_observed(case.other_last, seen.other_last)
    return moved_with_size(case, seen)


def above_observed(reports: Pass, answers: Answers) -> str | None:
    size, waiting = table.max_size(reports), table.max_waiting(reports)
    if waiting < size or all(verdict.allow for verdict in said(answers)):
        return None
    return f"delayed with {waiting} waiting although the target is capped by max_prefill_bs {size}"


def moved_with_size(case: LastPassCase, seen: LastPassSeen) -> str | None:
    if differing(case) != {"max_prefill_bs"}:
        return None
    for one, other in zip(said(seen.last), said(seen.other_last), strict=True):
        if (one.allow, one.reason) != (other.allow, other.reason):
            size, other_size = table.max_size(case.last), table.max_size(case.other_last)
            said_both = f"{one.reason} at max_prefill_bs {size}, {other.reason} at {other_size}"
            return f"{said_both}, prefill_max_requests {case.config.prefill_max_requests}"
    return None


def configured_cap_decides(case: LastPassCase, _: LastPassSeen) -> bool:
    """The queue is short of the target, but would not be if one of the observed sizes were the cap."""
    both = (case.last, case.other_last)
    if case.config.prefill_max_requests is None or differing(case) != {"max_prefill_bs"}:
        return False
    observed = [table.queue_short(p, case.config, capacity=table.max_size(p)) for p in both]
    return all(all_with(p, case.config, slot=False, queue=True) for p in both) and not all(observed)


def observed_cap_decides(case: LastPassCase, _: LastPassSeen) -> bool:
    """No cap is configured, and only the observed size keeps the target from exceeding the queue."""
    return case.config.prefill_max_requests is None and any(
        all_with(p, case.config, slot=False, queue=False)
        and table.queue_short(p, case.config, capacity=table.max_running(p))
        for p in (case.last, case.other_last)
    )


def longer_queue(case: LastPassCase) -> int:
    """1 if `other_last` is the same table with longer queues, -1 if `last` is, else 0."""
    gaps = [b.waiting_queue_len - a.waiting_queue_len for a, b in zip(case.last, case.other_last, strict=True)]
    if differing(case) != {"waiting_queue_len"}:
        return 0
    return (min(gaps) >= 0) - (max(gaps) <= 0)


def longer_queue_not_worse(case: LastPassCase, seen: LastPassSeen, _: Any) -> str | None:
    """delay.monotone."""
    problem, direction = raised(seen), longer_queue(case)
    if problem or not direction:
        return problem
    short, long = (case.last, seen.last), (case.other_last, seen.other_last)
    if direction < 0:
        short, long = long, short
    for rank, (one, other) in enumerate(zip(said(short[1]), said(long[1]), strict=True)):
        if one.allow and not other.allow:
            queues = " -> ".join(str([report.waiting_queue_len for report in p]) for p in (short[0], long[0]))
            return f"queues {queues} turned {one.reason} into {other.reason} on rank {rank}"
    return None


def queue_decides(case: LastPassCase, _: LastPassSeen) -> bool:
    met = [all_with(p, case.config, slot=False, queue=True) for p in (case.last, case.other_last)]
    return longer_queue(case) != 0 and met[0] != met[1]


def remembers_recent(case: AttemptsCase, seen: AttemptsSeen, _: Any) -> str | None:
    """delay.recent-size: the largest of the last 16 non-empty attempts, judged by that definition alone."""
    for i, answer in enumerate(seen.max_prefill_bs):
        if isinstance(answer, Raised):
            return f"pass {i + 1}: raised {answer}"
        sizes = table.recent_sizes(case.attempts[: i + 1])
        if answer != max(sizes, default=0):
            after = "an idle pass" if table.attempt_size(case.attempts[i]) == 0 else f"an attempt of {sizes[-1]}"
            return f"pass {i + 1}: max_prefill_bs is {answer} after {after}; recent attempts were {short(sizes)}"
    return None


def short(sizes: list[int]) -> str:
    """Runs of equal sizes as `size x times`, newest last, the oldest cut to keep one line.

    >>> short([20, 1, 1, 1])
    '20, 3 x 1'
    """
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1][1] += 1
        else:
            runs.append([size, 1])
    shown = [f"{times} x {size}" if times > 1 else str(size) for size, times in runs]
    return ", ".join(["...", *shown[-5:]] if len(shown) > 5 else shown) or "none"


def old_burst(case: AttemptsCase, _: AttemptsSeen) -> bool:
    """The largest attempt of all has left the window."""
    sizes = [size for size in map(table.attempt_size, case.attempts) if size]
    return max(sizes, default=0) > max(sizes[-table.WINDOW :], default=0)


def idle_after_attempt(case: AttemptsCase, _: AttemptsSeen) -> bool:
    return any(a and not b for a, b in pairwise(map(table.attempt_size, case.attempts)))


def rejected_without_slots(case: AttemptsCase, _: AttemptsSeen) -> bool:
    return any(a.queue > 0 and a.admitted == 0 and a.free_slots == 0 for a in case.attempts)
