"""select.*: the smallest captured bucket that holds the tokens and the rows within the padding bound, or eager."""

from collections.abc import Callable
from functools import wraps

from cpbcg_ref.answers import Raised, SelectPairSeen, SelectSeen
from cpbcg_ref.cases import SelectCase, SelectPairCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import (
    PLAIN,
    Turn,
    allowed,
    clip,
    every_turn,
    invariant,
    number,
    part,
    raised,
    some_turn,
)
from cpbcg_ref.invariants.model import SHOULD, Check, Witness
from cpbcg_ref.oracles.buckets import fitting, refusal


def select_check(judge: Callable[[SelectCase, int | None], str | None]) -> Check:
    """A check of one answer of the selector; a refusal to answer is a violation."""

    @wraps(judge)
    def check(case: SelectCase, seen: SelectSeen, contract: Contract) -> str | None:
        if isinstance(seen.answer, Raised):
            return raised("selector", seen.answer)
        wrong = judge(allowed(case, contract), seen.answer)
        need = f"{case.num_tokens} tokens, {case.required_local_tokens} rows"
        return clip(f"{number(seen.answer)} for {need}: {wrong}") if wrong else None

    return check


@select_check
def fits_tokens(case: SelectCase, chosen: int | None) -> str | None:
    """The chosen bucket holds the tokens."""
    return "too few tokens" if chosen is not None and chosen < case.num_tokens else None


@select_check
def fits_rows(case: SelectCase, chosen: int | None) -> str | None:
    """The chosen bucket holds the rows."""
    rows = {bucket: rows for bucket, rows in case.bucket_local_tokens if bucket == chosen}
    return f"it captured {rows[chosen]}" if chosen in rows and rows[chosen] < case.required_local_tokens else None


@select_check
def captured(case: SelectCase, chosen: int | None) -> str | None:
    """The chosen bucket was captured."""
    if chosen is None or (chosen in case.capture_num_tokens and chosen in dict(case.bucket_local_tokens)):
        return None
    return f"its rows are unknown, known are {','.join(str(bucket) for bucket, _ in case.bucket_local_tokens)}"


@select_check
def padding_bound(case: SelectCase, chosen: int | None) -> str | None:
    """Chosen <= 2 x tokens (or <= the opt-in floor); exactly 2 x is allowed."""
    most = max(case.max_padding_factor * case.num_tokens, case.min_replay_bucket)
    return f"at most {most} allowed" if chosen is not None and chosen > most else None


@select_check
def minimal(case: SelectCase, chosen: int | None) -> str | None:
    """No smaller captured bucket satisfies fits-tokens, fits-rows and padding-bound."""
    able = fitting(case)
    return f"{able[0]} is enough" if chosen is not None and able and able[0] < chosen else None


@select_check
def complete(case: SelectCase, chosen: int | None) -> str | None:
    """The answer is None only when no captured bucket satisfies those three."""
    able = fitting(case)
    return f"bucket {able[0]} fits" if chosen is None and able else None


def pure(case: SelectCase, seen: SelectSeen, contract: Contract) -> str | None:
    """Same answer when asked twice; arguments are not mutated."""
    for answer in (seen.answer, seen.again):
        if isinstance(answer, Raised):
            return raised("selector", answer)
    if seen.mutated:
        return f"the selector changed its argument {seen.mutated} ({case.num_tokens} tokens)"
    again = f"{number(seen.answer)}, asked again {number(seen.again)} ({case.num_tokens} tokens)"
    return again if seen.answer != seen.again else None


def monotone(case: SelectPairCase, seen: SelectPairSeen, contract: Contract) -> str | None:
    """More capacity never makes the choice worse; an irrelevant bucket changes nothing."""
    base, more = seen.base.answer, seen.more.answer
    if isinstance(base, Raised):
        return raised("selector", base)
    if isinstance(more, Raised):
        return raised("selector with more capacity", more)
    what = f"{number(base)} becomes {number(more)} ({case.base.num_tokens} tokens)"
    if not matters(case, contract):
        return f"buckets that cannot matter: {what}" if base != more else None
    worse = base is not None and (more is None or more > base)
    return f"more capacity: {what}" if worse else None


def matters(case: SelectPairCase, contract: Contract = PLAIN) -> bool:
    """Can a bucket that differs between the two run the batch, before or after."""
    both = [allowed(one, contract) for one in (case.base, case.more)]
    before, after = ({b: dict(one.bucket_local_tokens).get(b) for b in one.capture_num_tokens} for one in both)
    changed = {bucket for bucket, _ in before.items() ^ after.items()}
    return any(bucket in changed for one in both for bucket in fitting(one))


@every_turn
def minimal_in_batches(turn: Turn) -> str | None:
    if turn.why_eager or not isinstance(turn.replays, int):
        return None
    able = fitting(turn.question())
    worse = able and able[0] < turn.replays
    return f"rank {turn.rank} replays bucket {turn.replays}, {able[0]} is enough" if worse else None


@every_turn
def complete_in_batches(turn: Turn) -> str | None:
    if turn.why_eager or turn.admitted is not False:
        return None
    able = fitting(turn.question())
    return f"rank {turn.rank} runs eager, bucket {able[0]} fits" if able else None


@every_turn
def without_cp(turn: Turn) -> str | None:
    """An engine with CP off (n = 1) gets what the token rule alone gives, floor included; with CP on, an inactive batch
    runs eager.

    With CP off, batches of unknown length or without tokens are not judged: the rule has nothing to say.
    """
    if turn.server.cp_size > 1:
        wrong = turn.admitted is True and not turn.sharded
        return f"CP is not active, rank {turn.rank} admits {number(turn.replays)}" if wrong else None
    if not turn.batch.lengths_known or not turn.batch.num_tokens:
        return None
    expected = next(iter(fitting(turn.question(tokens_alone=True))), None)
    text = f"without CP: {number(turn.replays)}, the token rule gives {number(expected)}"
    return text if turn.replays != expected else None


def refused(reason: str, *, at_least: int = 1) -> Witness:
    """So many buckets that are refused for this reason first, "" for any."""

    def met(case: SelectCase, seen: SelectSeen) -> bool:
        reasons = [refusal(case, bucket) for bucket in case.capture_num_tokens]
        return sum(bool(why) and why.startswith(reason) for why in reasons) >= at_least

    return met


def fit(at_least: int) -> Witness:
    return lambda case, seen: len(fitting(case)) >= at_least


def changed(relevant: bool) -> Witness:
    return lambda case, seen: case.base != case.more and matters(case) == relevant


def exactly_twice(case: SelectCase, seen: SelectSeen) -> bool:
    return case.max_padding_factor * case.num_tokens in fitting(case)[:1]


def replayable_by_tokens(turn: Turn) -> bool:
    return bool(fitting(turn.question(tokens_alone=True)))


def replayable(turn: Turn) -> bool:
    return not turn.why_eager and bool(fitting(turn.question()))


FITS = {"a_bucket_fits_a_batch": some_turn(replayable)}
INVARIANTS = [
    invariant(
        "select.fits-tokens",
        part("select", fits_tokens, a_bucket_has_too_few_tokens=refused("too few tokens")),
        sources="sglang#33906",
    ),
    invariant(
        "select.fits-rows",
        part("select", fits_rows, a_bucket_has_too_few_rows=refused("too few rows")),
        sources="sglang#33906",
    ),
    invariant(
        "select.captured",
        part("select", captured, a_bucket_has_unknown_rows=refused("not captured")),
        sources="tokenspeed#936",
    ),
    invariant(
        "select.padding-bound",
        part("select", padding_bound, two_times_hit_exactly=exactly_twice, over_two_times=refused("over")),
        sources="sglang#31487 sglang#40253",
    ),
    invariant(
        "select.minimal",
        part("select", minimal, two_buckets_fit=fit(2)),
        part("replay", minimal_in_batches, **FITS),
        sources="sglang#33906",
    ),
    invariant(
        "select.complete",
        part("select", complete, a_bucket_fits=fit(1), two_buckets_refused=refused("", at_least=2)),
        part("replay", complete_in_batches, **FITS),
        sources="sglang#33906 sglang#40253",
    ),
    invariant("select.pure", part("select", pure, a_bucket_fits=fit(1)), sources="vllm:CudagraphDispatcher"),
    invariant(
        "select.without-cp",
        part("replay", without_cp, a_bucket_fits_without_cp=some_turn(replayable_by_tokens, cp=False)),
        sources="sglang#38603 sglang#26911 sglang#40253",
    ),
    invariant(
        "select.monotone",
        part("select-pair", monotone, a_change_matters=changed(True), a_change_cannot_matter=changed(False)),
        level=SHOULD,
    ),
]
