"""Put a case to an engine and write down what it answered: one function per family of cases.

Nothing is judged here and nothing is repaired. An exception from the engine's own files becomes a `Raised`; any other
exception is the adapter's and goes up.
"""

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from cpbcg_ref import answers, cases
from cpbcg_ref.answers import Raised
from cpbcg_ref.engines.contract import METHODS, missing, root_of

OWN = str(Path(__file__).parent)


class CaptureFailed(Exception):
    """The engine could not capture the ladder of a case whose question lies behind capture."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(str(raised))
        self.raised = raised


class OnItsBehalf(Exception):
    """Raised by a stand-in where it takes the engine's part: the answer of the engine, at its own line that called."""


def answered(engine: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The value, or `Raised` if the innermost frame that is the engine's or the adapter's is the engine's."""
    try:
        return function(*args, **options)
    except (Exception, SystemExit) as error:  # an answer, whatever its type
        if raised := raised_by_engine(engine, error):
            return raised
        raise


def raised_by_engine(engine: Any, error: BaseException) -> Raised | None:
    """`Raised` if the engine raised; None if the adapter did (no frame, or ours or the adapter's innermost)."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if root_of(engine, frame.filename):
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            return Raised(type(error).__name__, str(error).split("\n")[0], where)
        if frame.filename.startswith(OWN) and not isinstance(error, OnItsBehalf):
            return None
    return None


def each_rank(engine: Any, ranks: int, function: Callable[..., Any], /, *args: Any, **options: Any) -> tuple[Any, ...]:
    return tuple(answered(engine, function, *args, cp_rank=rank, **options) for rank in range(ranks))


def ask_layout(engine: Any, case: cases.LayoutCase) -> answers.LayoutSeen:
    batch, how = case.batch, group(case)
    rows = ask_shard(engine, batch, **how)
    sharded = {"rows": as_tokens(engine, rows), "restored": ask_gather(engine, batch, rows, **how)}
    if not (isinstance(rows, Raised) or missing(engine, "captured-rows")):
        captured = {"captured_rows": max(map(len, rows)) + case.spare_rows}
        spare = ask_shard(engine, batch, **captured, **how)
        sharded["spare_rows"] = as_tokens(engine, spare)
        sharded["spare_restored"] = ask_gather(engine, batch, spare, **captured, **how)
    return answers.LayoutSeen(
        active=ask_active(engine, batch, **how),
        required=ask_required(engine, batch.lengths, **how),
        logical=ask_if_there(engine, "rows", batch, **how),
        positions=ask_if_there(engine, "positions", batch, global_positions(batch), **how),
        lengths=ask_if_there(engine, "lengths", batch, payload(batch), static_lengths(batch, 2 * case.cp_size), **how),
        segments=ask_if_there(engine, "keys", batch, **how),
        **sharded,
    )


def ask_if_there(engine: Any, capability: str, *args: Any, **how: Any) -> Any:
    """What the method of this capability answers; None for an engine without it."""
    if missing(engine, capability):
        return None
    return freeze(answered(engine, getattr(engine, METHODS[capability]), *args, **how))


def ask_active(engine: Any, batch: cases.Batch, **how: Any) -> tuple[Any, ...] | None:
    """Is CP active, on every rank; None for an engine without a gate."""
    return None if missing(engine, "gate") else each_rank(engine, how["cp_size"], engine.is_cp_active, batch, **how)


def group(case: cases.LayoutCase | cases.BadLayoutCase) -> dict[str, Any]:
    return {"cp_size": case.cp_size, "strategy": case.strategy}


def ask_shard(engine: Any, batch: cases.Batch, **how: Any) -> Any:
    """The rows of every rank, with the payload in them."""
    return answered(engine, engine.shard, batch, payload(batch), **how)


def ask_gather(engine: Any, batch: cases.Batch, rows: Any, **how: Any) -> Any:
    """What every rank gets back from these rows; None for an engine that gathers nothing."""
    if isinstance(rows, Raised):
        return rows
    return None if missing(engine, "gather") else as_tokens(engine, answered(engine, engine.gather, batch, rows, **how))


def ask_required(engine: Any, lengths: tuple[int, ...], **how: Any) -> tuple[Any, ...] | None:
    """`required_local_tokens` on every rank; None for an engine without that capability."""
    if missing(engine, "capacity"):
        return None
    return each_rank(engine, how["cp_size"], engine.required_local_tokens, list(lengths), **how)


def ask_bad_layout(engine: Any, case: cases.BadLayoutCase) -> answers.BadLayoutSeen:
    batch, how = cases.Batch(lengths=case.lengths, prefixes=(0,) * len(case.lengths)), group(case)
    factor = {"padding_factor": case.padding_factor} if case.padding_factor else {}
    return answers.BadLayoutSeen(
        active=ask_active(engine, batch, **how),
        rows=as_tokens(engine, ask_shard(engine, batch, **factor, **how)),
        required=ask_required(engine, case.lengths, **how) or (),
    )


def ask_capture(engine: Any, case: cases.CaptureCase) -> answers.CaptureSeen:
    started = answered(engine, engine.start, case.server)
    if isinstance(started, Raised):
        return answers.CaptureSeen(ranks=(started,) * case.server.cp_size)
    return answers.CaptureSeen(ranks=each_rank(engine, case.server.cp_size, started.captured))


def ask_select(engine: Any, case: cases.SelectCase) -> answers.SelectSeen:
    def once() -> tuple[Any, str]:
        ladder, table = list(case.capture_num_tokens), dict(case.bucket_local_tokens)
        given = {"capture_num_tokens": ladder, "bucket_local_tokens": table}
        answer = answered(engine, engine.select_replay_bucket, **vars(case) | given)
        after = {"capture_num_tokens": ladder, "bucket_local_tokens": table.items()}
        return answer, next((name for name, now in after.items() if tuple(now) != getattr(case, name)), "")

    (answer, mutated), (again, _) = once(), once()
    return answers.SelectSeen(answer=answer, again=again, mutated=mutated)


def ask_select_pair(engine: Any, case: cases.SelectPairCase) -> answers.SelectPairSeen:
    return answers.SelectPairSeen(base=ask_select(engine, case.base), more=ask_select(engine, case.more))


def ask_replay(engine: Any, case: cases.ReplayCase) -> answers.ReplaySeen:
    started = answered(engine, engine.start, case.server)
    if isinstance(started, Raised):
        raise CaptureFailed(started)
    captured, ranks = each_rank(engine, case.server.cp_size, started.captured), case.server.cp_size
    batches = tuple(ask_batch(engine, started, batch, ranks) for batch in case.batches)
    return answers.ReplaySeen(captured=captured, batches=batches)


def ask_batch(engine: Any, started: Any, batch: cases.Batch, ranks: int) -> answers.BatchSeen:
    def load(cp_rank: int, *, admitted: bool) -> Any:
        return started.load_batch(batch, cp_rank=cp_rank) if verdicts[cp_rank] is admitted else None

    questions = (started.can_run_graph, started.is_cp_active, started.select)
    verdicts, active, bucket = (each_rank(engine, ranks, question, batch) for question in questions)
    loaded, refused = each_rank(engine, ranks, load, admitted=True), ()
    if ranks > 1 and batch.lengths and batch.lengths_known:
        refused = each_rank(engine, ranks, load, admitted=False)
    return answers.BatchSeen(active=active, admitted=verdicts, bucket=bucket, loaded=loaded, refused=refused)


def ask_passes(engine: Any, case: cases.PassesCase) -> answers.PassesSeen:
    return answers.PassesSeen(passes=run_passes(engine, case.config, case.passes))


def ask_last_pass(engine: Any, case: cases.LastPassCase) -> answers.LastPassSeen:
    both = (run_passes(engine, case.config, (*case.history, last)) for last in (case.last, case.other_last))
    (*history, last), (*_, other_last) = both
    return answers.LastPassSeen(history=tuple(history), last=last, other_last=other_last)


def run_passes(engine: Any, config: cases.DelayerConfig, passes: Iterable[cases.Pass]) -> tuple[tuple[Any, ...], ...]:
    delayers = engine.start_delayers(config)
    return tuple(tuple(delayers.step(reports)) for reports in passes)


def ask_attempts(engine: Any, case: cases.AttemptsCase) -> answers.AttemptsSeen:
    window = engine.start_attempts()
    sizes = tuple(answered(engine, window.step, attempt) for attempt in case.attempts)
    return answers.AttemptsSeen(max_prefill_bs=sizes)


def ask_votes(engine: Any, case: cases.VotesCase) -> answers.VotesSeen:
    return answers.VotesSeen(prefillable=tuple(engine.votes(case.mid_chunk, case.waiting)))


def ask_dispatch(engine: Any, case: cases.DispatchCase) -> answers.DispatchSeen:
    started = answered(engine, engine.start_dispatcher, case)
    if isinstance(started, Raised):
        raise CaptureFailed(started)
    named = {name: names for name in ("allowed", "excluded") if (names := getattr(case, name))}

    def modes() -> dict[str, Any]:
        return {name: started.modes(names, eager=name == "allowed") for name, names in named.items()}

    def once() -> tuple[tuple[Any, ...], str]:
        given, before = modes(), modes()
        chosen = tuple(started.dispatch(**given))
        return chosen, next((name for name in given if given[name] != before[name]), "")

    (chosen, mutated), (again, _) = once(), once()
    captured = tuple(started.captured())
    return answers.DispatchSeen(captured=captured, chosen=chosen, again=again, mutated=mutated)


def payload(batch: cases.Batch) -> list[int]:
    """One number per token, from 1: 0 is no token."""
    return list(range(1, batch.num_tokens + 1))


def static_lengths(batch: cases.Batch, multiple: int) -> list[int]:
    """Cumulative lengths as loaders hand them over in a fixed shape: the last one again until it is such a multiple.

    >>> static_lengths(cases.Batch(lengths=(4, 4), prefixes=(0, 0)), 4)
    [0, 4, 8, 8]
    """
    cumulative = list(accumulate(batch.lengths, initial=0))
    return cumulative + cumulative[-1:] * (-len(cumulative) % multiple)


def freeze(value: Any) -> Any:
    """Lists of lists as tuples of tuples; a `Raised` stays."""
    return tuple(freeze(item) for item in value) if isinstance(value, (list, tuple)) else value


def as_tokens(engine: Any, per_rank: Any) -> Any:
    """Payload values back to token indices; the engine's declared padding value to None."""
    if isinstance(per_rank, Raised):
        return per_rank
    pad = engine.contract.padding_value
    return tuple(tuple(None if value == pad else value - 1 for value in rows) for rows in per_rank)


def global_positions(batch: cases.Batch) -> list[int]:
    """Position of each token in its own sequence, cached prefix included."""
    return [prefix + i for length, prefix in zip(batch.lengths, batch.prefixes, strict=True) for i in range(length)]


@dataclass(frozen=True)
class Family:
    """Cases of one kind: the capability that an engine needs, the kind of case, how to ask, and how many in `ci`."""

    capability: str
    case: type
    ask: Callable[[Any, Any], Any]
    examples: int


# Examples are chosen so that the whole suite ends within 20 s on two cores while each witness comes up in every seed
# tried. Families that cost little get more. Those that take longest come first: the last worker does not wait for them.
FAMILIES = {
    "replay": Family("replay", cases.ReplayCase, ask_replay, 200),
    "passes": Family("negotiation", cases.PassesCase, ask_passes, 250),
    "skewed-passes": Family("negotiation", cases.PassesCase, ask_passes, 200),
    "last-pass": Family("negotiation", cases.LastPassCase, ask_last_pass, 250),
    "layout": Family("layout", cases.LayoutCase, ask_layout, 150),
    "capture": Family("replay", cases.CaptureCase, ask_capture, 100),
    "bad-layout": Family("layout", cases.BadLayoutCase, ask_bad_layout, 100),
    "attempts": Family("attempts", cases.AttemptsCase, ask_attempts, 60),
    "select": Family("selection", cases.SelectCase, ask_select, 400),
    "select-pair": Family("selection", cases.SelectPairCase, ask_select_pair, 200),
    "votes": Family("votes", cases.VotesCase, ask_votes, 50),
    "dispatch": Family("dispatch", cases.DispatchCase, ask_dispatch, 400),
    "data": Family("data", cases.ReplayCase, ask_replay, 50),
}
