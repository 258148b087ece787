"""All small cases of the negotiation, smallest first, by nested loops: what no generator had a hand in.

A run is gone on with only if it is new. What an engine answers next and what a judge can make of it hangs on the
engine's state, on how long episodes have been open, on the last verdicts, and on who was prefillable and who was held
since the last release.

A palette of few numbers will do: delayers and judges add, compare and cut off, so what matters is which of two numbers
is larger, and there is a report on each side of every threshold and one on it: 4 slots, or 7 for 2 replicas, which is 4
for each or, wrongly, 3 or 7. More ranks add to that only who of them holds the largest number, so fewer reports.
"""

from copy import copy
from itertools import combinations, product
from math import inf

from cpbcg_ref import answers, cases
from cpbcg_ref.asking import ask_votes
from cpbcg_ref.oracles.passes import opened, recent_sizes, status

LIMIT_MS, MARK = 1000.0, 0.8
STEPS = (0.0, LIMIT_MS / 2, LIMIT_MS)  # of a clock between two passes
BOUNDS, RATIOS, CAPS = (0, 1, 2, 3, 4), (None, 1.0, 0.5), (None, 2)
COUNTS = ("running_batch", "max_prefill_bs", "waiting_queue_len")
NUMBERS = list(product((0, 1, 3, 4), (0, 1, 2), (0, 1, 2)))
FEWER = [(0, 0, 0), (0, 1, 0), (1, 2, 0), (3, 0, 0), (3, 1, 0), (3, 1, 1), (3, 1, 2), (3, 2, 0), (4, 0, 0), (4, 1, 1)]
FEWEST = [(0, 0, 0), (3, 1, 1), (4, 1, 0)]
ATTEMPTS = [cases.Attempt(admitted=size) for size in (0, 1, 2)]
REJECTED = [cases.Attempt(queue=queue, free_slots=free) for queue, free in ((1, 0), (2, 1), (1, 2))]


def configs(ranks, *, marked):
    groups = [(ranks, 4, True)] if ranks > 1 else [(1, 4, True), (2, 7, False)]
    for bound, ratio, cap, (dp_size, most, attention) in product(BOUNDS, RATIOS, CAPS, groups):
        yield cases.DelayerConfig(
            dp_size=dp_size,
            max_delay_passes=bound,
            max_running_requests=most,
            max_delay_ms=LIMIT_MS,
            queue_min_ratio=ratio,
            prefill_max_requests=cap,
            token_usage_low_watermark=MARK if marked else None,
            enable_dp_attention=attention,
        )


def reports(ranks, *, marked):
    """Of one rank; a rank that is not prefillable may tell its numbers or not."""
    numbers = FEWEST if ranks + marked > 2 else FEWER if ranks + marked > 1 else NUMBERS
    counts = [dict(zip(COUNTS, each, strict=True)) for each in numbers]
    usages = (1.0, MARK, MARK / 2) if marked else (1.0,)
    votes = [(True, each) for each in counts] + [(False, each) for each in counts if each["running_batch"] in (0, 4)]
    return [cases.RankReport(prefillable=vote, token_usage=use, **each) for use, (vote, each) in product(usages, votes)]


class Run:
    """An engine that has gone through some passes."""

    def __init__(self, engine, config, ranks):
        self.config, self.delayers, self.passes, self.said = config, engine.start_delayers(config), (), ()
        self.clocks, self.started = (0.0,) * ranks, (None,) * ranks

    def after(self, reports):
        run = copy(self)
        run.delayers = copy(self.delayers)
        run.said = (*self.said, tuple(run.delayers.step(reports)))
        run.passes = (*self.passes, reports)
        run.clocks = tuple(report.now_ms for report in reports)
        run.started = tuple(opened(*each) for each in zip(self.started, reports, run.said[-1], strict=True))
        return run

    def key(self):
        began = [state.started_ms for state in self.delayers.states]
        ages = [
            now - (inf if at is None else at) for at, now in zip((*began, *self.started), self.clocks * 2, strict=True)
        ]
        flags = [state.free_pass_used for state in self.delayers.states]
        return str((self.said[-1:], ages, flags, self.since_release()))

    def since_release(self):
        turns = [
            (status(p), [(r.prefillable, v.allow) for r, v in zip(p, said, strict=True)])
            for p, said in zip(self.passes, self.said, strict=True)
        ]
        let_go = [i for i, (who, ranks) in enumerate(turns) if who != "none" and all(allow for _, allow in ranks)]
        return turns[let_go[-1] + 1 :] if let_go else turns

    def next_passes(self, palette, *, skewed):
        ranks = len(self.clocks)
        steps = product(STEPS, repeat=ranks) if skewed else ((step,) * ranks for step in STEPS)
        waits = list(steps) if any(at is not None for at in self.started) else [(0.0,) * ranks]
        for each, wait in product(product(palette, repeat=ranks), waits):
            clocks = [now + step for now, step in zip(self.clocks, wait, strict=True)]
            yield tuple(cases.RankReport(**vars(one) | {"now_ms": now}) for one, now in zip(each, clocks, strict=True))


class Runs:
    """All runs of one engine with `ranks` ranks that differ, one pass longer with every call."""

    def __init__(self, engine, ranks, *, skewed, marked):
        self.palette, self.skewed = reports(ranks, marked=marked), skewed
        self.frontier = [Run(engine, config, ranks) for config in configs(ranks, marked=marked)]
        self.known = set()

    def longer(self):
        following = []
        for run in self.frontier:
            for each in run.next_passes(self.palette, skewed=self.skewed):
                after = run.after(each)
                yield after
                if (found := (run.config, after.key())) not in self.known:
                    self.known.add(found)
                    following.append(after)
        self.frontier = following


def smallest_passes(engine, check, most, *, skewed=False):
    """Size of the smallest case that `check` finds fault with; None if there is none up to `most`."""
    kinds = {}
    for size in range(1, most + 1):
        for ranks, marked in product([n for n in range(1, size + 1) if size % n == 0], (False, True)):
            runs = kinds.setdefault((ranks, marked), Runs(engine, ranks, skewed=skewed, marked=marked))
            for run in runs.longer():
                case = cases.PassesCase(config=run.config, passes=run.passes)
                if check(case, answers.PassesSeen(passes=run.said), engine.contract):
                    return size
    return None


def smallest_last_pass(engine, check, most):
    """The same for pairs of last passes, which differ in one number."""
    for size in range(2, most + 1):
        for ranks in [n for n in range(1, size) if size % n == 0 and size > n]:
            for run in histories(engine, ranks, size // ranks - 2):
                for last, other in pairs(reports(ranks, marked=False), run):
                    told = {"history": run.passes, "last": last, "other_last": other}
                    answers_ = [run.after(each).said[-1] for each in (last, other)]
                    seen = answers.LastPassSeen(history=run.said, last=answers_[0], other_last=answers_[1])
                    if check(cases.LastPassCase(config=run.config, **told), seen, engine.contract):
                        return size
    return None


def histories(engine, ranks, passes):
    runs = Runs(engine, ranks, skewed=False, marked=False)
    for _ in range(passes):
        list(runs.longer())
    return runs.frontier


def pairs(palette, run):
    every = list(run.next_passes([one for one in palette if one.prefillable], skewed=False))
    for one, other in combinations(every, 2):
        changed = {
            name for a, b in zip(one, other, strict=True) for name in vars(a) if getattr(a, name) != getattr(b, name)
        }
        if changed in ({"max_prefill_bs"}, {"waiting_queue_len"}):
            yield one, other
            yield other, one


def smallest_attempts(engine, check, most):
    """The same for attempts: rejected ones among the first few only."""
    frontier = [(engine.start_attempts(), (), ())]
    for size in range(1, most + 1):
        following = {}
        for (window, attempts, said), attempt in product(frontier, ATTEMPTS + (REJECTED if size < 4 else [])):
            after, tried = copy(window), (*attempts, attempt)
            told = (*said, after.step(attempt))
            if check(cases.AttemptsCase(attempts=tried), answers.AttemptsSeen(max_prefill_bs=told), engine.contract):
                return size
            following[str((vars(after), recent_sizes(tried)))] = (after, tried, told)
        frontier = list(following.values())
    return None


def smallest_votes(engine, check, most):
    for ranks in range(1, most + 1):
        for chunks, waiting in product(product((False, True), repeat=ranks), product((0, 1), repeat=ranks)):
            case = cases.VotesCase(mid_chunk=chunks, waiting=waiting)
            if check(case, ask_votes(engine, case), engine.contract):
                return ranks
    return None
