"""select.*: the smallest captured bucket that holds the tokens and the rows within the padding bound, or eager."""

from collections.abc import Callable
from functools import partial

from cpbcg_ref.answers import Raised, ReplaySeen, SelectPairSeen, SelectSeen
from cpbcg_ref.cases import ReplayCase, SelectCase, SelectPairCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import PLAIN, Turn, allowed, every_turn, fitted, number, raised, some_turn, turns
from cpbcg_ref.invariants.model import SHOULD, Judge, Sentences, Witness, invariant, only_if
from cpbcg_ref.oracles.buckets import fitting, refusals

Chosen = int | None  # a bucket, None for eager
Choice = Callable[[SelectCase, Chosen], Sentences]  # judges a choice by what was asked


def judged(judge: Choice, case: SelectCase, chosen: Chosen, who: str = "") -> Sentences:
    asked = f"{case.num_tokens} tokens, {case.required_local_tokens} rows"
    return (fitted(f"{who}{number(chosen)} for {asked}: {wrong}") for wrong in judge(case, chosen))


def of_answer(judge: Choice) -> Judge:
    """Judges one answer of the selector; a refusal to answer is a violation."""
    return lambda case, seen, contract: (
        raised("selector", seen.answer) or judged(judge, allowed(case, contract), seen.answer)
    )


def of_turn(judge: Choice) -> Judge:
    """Judges in the same way what admission chose for a batch that CP graphs can run."""

    def check(turn: Turn) -> Sentences:
        chosen = turn.replays
        if turn.why_eager or isinstance(chosen, Raised) or (chosen is None and turn.admitted):
            return ()
        return judged(judge, turn.question(), chosen, who=f"rank {turn.rank}: ")

    return every_turn(check)


select = partial(invariant, family="select", each=of_answer)
on_server = partial(invariant, family="replay", each=of_turn, some=some_turn)


def refused(reason: str) -> Witness:
    """A bucket that is refused for this reason first."""
    return lambda case, seen: any(next(iter(refusals(case, b)), "").startswith(reason) for b in case.capture_num_tokens)


def fit(at_least: int) -> Witness:
    return lambda case, seen: len(fitting(case)) >= at_least


def two_times_hit_exactly(case: SelectCase, seen: SelectSeen) -> bool:
    return case.max_padding_factor * case.num_tokens in fitting(case)[:1]


def a_bucket_fits_a_batch(turn: Turn) -> bool:
    return not turn.why_eager and bool(fitting(turn.question()))


@only_if(lambda contract: 1 in contract.cp_sizes)
def a_bucket_fits_without_cp(case: ReplayCase, seen: ReplaySeen) -> bool:
    alone = [ranks[0] for ranks in turns(case, seen) if len(ranks) == 1]
    return any(fitting(turn.question(tokens_alone=True)) for turn in alone)


def broken(rule: str, case: SelectCase, chosen: Chosen) -> Sentences:
    return (why for why in ([] if chosen is None else refusals(case, chosen)) if why.startswith(rule))


@select("select.fits-tokens", a_bucket_has_too_few_tokens=refused("too few tokens"), sources="33906")
def fits_tokens(case: SelectCase, chosen: Chosen) -> Sentences:
    """The chosen bucket holds the tokens."""
    return broken("too few tokens", case, chosen)


@select("select.fits-rows", a_bucket_has_too_few_rows=refused("too few rows"), sources="33906")
def fits_rows(case: SelectCase, chosen: Chosen) -> Sentences:
    """The chosen bucket holds the rows."""
    return broken("too few rows", case, chosen)


@select("select.captured", a_bucket_has_unknown_rows=refused("not captured"), sources="tokenspeed#936")
def captured(case: SelectCase, chosen: Chosen) -> Sentences:
    """The chosen bucket was captured."""
    return broken("not captured", case, chosen)


@select("select.padding-bound", two_times_hit_exactly, over_two_times=refused("over"), sources="31487 40253")
def padding_bound(case: SelectCase, chosen: Chosen) -> Sentences:
    """Chosen <= 2 x tokens (or <= the opt-in floor); exactly 2 x is allowed."""
    return broken("over", case, chosen)


@on_server("select.minimal", a_bucket_fits_a_batch)
@select("select.minimal", two_buckets_fit=fit(2), sources="33906")
def minimal(case: SelectCase, chosen: Chosen) -> Sentences:
    """No smaller captured bucket satisfies fits-tokens, fits-rows and padding-bound."""
    for bucket in fitting(case):
        if chosen is not None and bucket < chosen:
            yield f"{bucket} is enough"


@on_server("select.complete", a_bucket_fits_a_batch)
@select("select.complete", a_bucket_fits=fit(1), sources="33906 40253")
def complete(case: SelectCase, chosen: Chosen) -> Sentences:
    """The answer is None only when no captured bucket satisfies those three."""
    for bucket in fitting(case):
        if chosen is None:
            yield f"bucket {bucket} fits"


@invariant("select.pure", family="select", once=True, a_bucket_fits=fit(1), sources="vllm:CudagraphDispatcher")
def pure(case: SelectCase, seen: SelectSeen, contract: Contract) -> Sentences:
    """Same answer when asked twice; arguments are not mutated."""
    yield from raised("selector", seen.answer)
    yield from raised("selector", seen.again)
    if seen.mutated:
        yield f"the selector changed its argument {seen.mutated} ({case.num_tokens} tokens)"
    if seen.answer != seen.again:
        yield f"{number(seen.answer)}, asked again {number(seen.again)} ({case.num_tokens} tokens)"


@invariant("select.without-cp", a_bucket_fits_without_cp, family="replay", each=every_turn, sources="38603 26911 40253")
def without_cp(turn: Turn) -> Sentences:
    """An engine with CP off (n = 1) gets what the token rule alone gives, floor included; with CP on, an inactive batch
    runs eager."""
    if not turn.batch.lengths_known:
        return  # nobody can tell whether CP is active: that it runs eager is for replay.safe-fallback
    if turn.server.cp_size > 1:
        if turn.admitted is True and not turn.sharded:
            yield f"CP is not active, rank {turn.rank} admits {number(turn.replays)}"
    elif turn.batch.num_tokens:  # else the rule has nothing to say
        expected = next(iter(fitting(turn.question(tokens_alone=True))), None)
        if turn.replays != expected:
            yield f"without CP: {number(turn.replays)}, the token rule gives {number(expected)}"


def matters(case: SelectPairCase, contract: Contract = PLAIN) -> bool:
    """Can a bucket that differs between the two run the batch, before or after."""
    both = [allowed(one, contract) for one in (case.base, case.more)]
    before, after = ({b: dict(one.bucket_local_tokens).get(b) for b in one.capture_num_tokens} for one in both)
    changed = {bucket for bucket, _ in before.items() ^ after.items()}
    return any(bucket in changed for one in both for bucket in fitting(one))


def a_change_matters(case: SelectPairCase, seen: SelectPairSeen) -> bool:
    return case.base != case.more and matters(case)


def a_change_cannot_matter(case: SelectPairCase, seen: SelectPairSeen) -> bool:
    return case.base != case.more and not matters(case)


def a_capture_between_two_selections(case: SelectPairCase, seen: SelectPairSeen) -> bool:
    """A bucket is captured after the first selection, and the second one has to choose it."""
    before, after = dict(case.base.bucket_local_tokens), fitting(case.more)[:1]
    return any(bucket not in before for bucket in after)


@invariant(
    "select.monotone",
    a_change_matters,
    a_change_cannot_matter,
    a_capture_between_two_selections,
    family="select-pair",
    level=SHOULD,
)
def monotone(case: SelectPairCase, seen: SelectPairSeen, contract: Contract) -> Sentences:
    """More capacity never makes the choice worse; an irrelevant bucket changes nothing."""
    base, more = seen.base.answer, seen.more.answer
    if isinstance(base, Raised) or isinstance(more, Raised):
        yield from raised("selector", base)
        yield from raised("selector with more capacity", more)
        return
    what = f"{number(base)} becomes {number(more)} ({case.base.num_tokens} tokens)"
    if not matters(case, contract) and base != more:
        yield f"buckets that cannot matter: {what}"
    if base is not None and (more is None or more > base):
        yield f"more capacity: {what}"
