"""replay.*: what admission accepts runs, and what cannot run is not accepted."""

from cpbcg_ref.answers import Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import ReplayCase
from cpbcg_ref.invariants.judging import Turn, every_turn, invariant, number, part, some_turn, turns, what


@every_turn
def admitted_implies_runs(turn: Turn) -> str | None:
    """What admission accepts, replay runs, with the same bucket; what it refuses is never replayed."""
    admitted, loaded, bucket = turn.admitted, turn.loaded, turn.seen.bucket[turn.rank]
    if isinstance(admitted, Raised):  # where eager was due, that is for replay.safe-fallback
        due = turn.server.cp_size == 1 or not turn.why_eager
        return f"rank {turn.rank} raised at admission: {what(admitted)}" if due else None
    if not admitted:
        return None
    admits = f"rank {turn.rank} admits {number(bucket)}"
    if isinstance(loaded, Raised):
        return f"{admits}, replay raised {what(loaded)}"
    ran = loaded.bucket if isinstance(loaded, Loaded) else None
    return f"{admits}, replays {number(ran)}" if ran is None or ran != bucket else None


@every_turn
def safe_fallback(turn: Turn) -> str | None:
    """Unknown capacity, missing lengths, inactive CP, a strategy the engine declares no graphs for: eager, no
    exception.

    Judged with CP on: without it there are no rows to know and nothing to be active.
    """
    unknown = f"rows of bucket {turn.replays} unknown" if isinstance(turn.replays, int) and turn.rows is None else ""
    why = turn.why_eager or unknown
    if turn.server.cp_size == 1 or not why or turn.admitted is False:
        return None
    if isinstance(turn.admitted, Raised):
        return f"{why}: rank {turn.rank} raised {what(turn.admitted)}"
    return f"{why}, rank {turn.rank} admits {number(turn.replays)}"


def same_bucket(case: ReplayCase, seen: ReplaySeen) -> bool:
    """Two batches of different lengths in one bucket of a server with CP."""
    replays = {(turn.replays, turn.batch.lengths) for turn in turns(case, seen) if isinstance(turn.replays, int)}
    return case.server.cp_size > 1 and len(replays) > len({bucket for bucket, _ in replays})


INVARIANTS = [
    invariant(
        "replay.admitted-implies-runs",
        part("replay", admitted_implies_runs, two_batches_in_the_same_bucket=same_bucket),
        sources="sglang#33906 sglang#38603",
    ),
    invariant(
        "replay.safe-fallback",
        part(
            "replay",
            safe_fallback,
            unknown_lengths=some_turn(lambda turn: not turn.batch.lengths_known),
            an_empty_batch=some_turn(lambda turn: not turn.batch.lengths),
            an_inactive_batch=some_turn(lambda turn: turn.batch.num_tokens > 0 and not turn.sharded),
        ),
        sources="sglang#20441 sglang#32606 sglang#38603",
    ),
]
