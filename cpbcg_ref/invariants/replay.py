"""capacity.no-overflow, agree.*, replay.*: what admission accepts has the rows, runs, and runs alike on all ranks."""

from collections.abc import Callable
from functools import partial
from itertools import combinations

from cpbcg_ref.answers import Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import ReplayCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import Turn, about, number, replay, turns, what
from cpbcg_ref.invariants.model import Judge, Sentences, only_if
from cpbcg_ref.oracles.buckets import fitting


@only_if(lambda contract: "zigzag" in contract.graph_strategies and not contract.divides)
def the_bucket_that_tokens_alone_pick_would_overflow(turn: Turn) -> bool:
    if turn.why_eager or not (picked := fitting(turn.question(tokens_alone=True))):
        return False
    return max(turn.live) > dict(turn.captured.bucket_local_tokens).get(picked[0], turn.batch.num_tokens)


def a_batch_is_replayed(turn: Turn) -> bool:
    return turn.admitted is True


def comes_back(case: ReplayCase, seen: ReplaySeen) -> bool:
    """A batch is replayed, another bucket is, and it is replayed again: what the one left may reach the other."""
    loaded = [got.loaded[0].bucket if isinstance(got.loaded[0], Loaded) else None for got in seen.batches]
    twice = [pair for pair in combinations(range(len(loaded)), 2) if len({case.batches[i] for i in pair}) == 1]
    buckets = [{*loaded[first : last + 1]} - {None} for first, last in twice if loaded[first] and loaded[last]]
    return case.server.cp_size > 1 and any(len(one) > 1 for one in buckets)


def unknown_lengths(turn: Turn) -> bool:
    return not turn.batch.lengths_known


def an_inactive_batch(turn: Turn) -> bool:
    return turn.batch.num_tokens > 0 and not turn.sharded


@replay("capacity.no-overflow", the_bucket_that_tokens_alone_pick_would_overflow, sources="33906")
def no_overflow(turn: Turn) -> Sentences:
    """Live rows on every rank <= rows captured for the bucket that admission implies."""
    if turn.why_eager:
        return
    owned, loaded = turn.live[turn.rank], turn.loaded if isinstance(turn.loaded, Loaded) else None
    if turn.rows is not None and owned > turn.rows:  # whatever replay does: it may crash instead of losing rows
        yield f"rank {turn.rank} needs {turn.required} rows, bucket {turn.replays} captured {turn.rows}"
    if loaded and loaded.live_rows is not None and loaded.live_rows < owned:
        yield f"rank {turn.rank} has {owned} live rows, {loaded.live_rows} were fed to the graph"
    if loaded and loaded.captured_rows != turn.rows:
        yield f"rank {turn.rank} replays {loaded.captured_rows} rows, bucket {turn.replays} captured {turn.rows}"


def alike(say: Callable[[Turn], str]) -> Judge:
    """Every rank must say the same about a batch, word for word. Refusing alike is agreement too."""

    def check(case: ReplayCase, seen: ReplaySeen, contract: Contract) -> Sentences:
        for ranks in turns(case, seen, contract):
            first, *others = map(say, ranks)
            for rank, other in enumerate(others, start=1):
                if other != first:
                    yield about(f"rank 0 {first}, rank {rank} {other}", ranks[0].batch.lengths, case.server.cp_size)

    return check


agree = partial(replay, each=alike)


@agree("agree.bucket", a_batch_is_replayed, sources="37561 37933 vllm#25906")
def bucket(turn: Turn) -> str:
    """All ranks choose the same bucket, from shared values only."""
    loaded = turn.loaded.bucket if isinstance(turn.loaded, Loaded) else turn.selected
    return f"selects {number(turn.selected)}" + (f", replays bucket {loaded}" if loaded != turn.selected else "")


@agree("agree.mode", a_batch_is_replayed, sources="35640 37888 31835 Megatron-LM#3033")
def mode(turn: Turn) -> str:
    """All ranks choose the same of graph and eager, from shared values only."""
    if isinstance(turn.admitted, Raised):
        return f"raises {turn.admitted.kind}"
    return "replays" if turn.admitted else "runs eager"


@agree("agree.collectives", a_batch_is_replayed, sources="24560 33865 37561 20134 30760")
def collectives(turn: Turn) -> str:
    """All ranks issue the same sequence of collectives."""
    # Told by what is gathered and by the rows that each rank must bring.
    if isinstance(turn.loaded, Loaded):
        return f"replays bucket {turn.loaded.bucket} of {turn.loaded.captured_rows} rows"
    for answer in (turn.admitted, turn.loaded, turn.active):
        if isinstance(answer, Raised):
            return f"stops with {answer.kind}"
    return "gathers its shards" if turn.active else "gathers nothing"


@replay(
    "replay.admitted-implies-runs",
    a_batch_is_replayed,
    an_inactive_batch,
    a_batch_comes_back_after_another_bucket=comes_back,
    sources="33906 38603",
)
def admitted_implies_runs(turn: Turn) -> Sentences:
    """What admission accepts, replay runs, with the same bucket; what it refuses is never replayed."""
    admits = f"rank {turn.rank} admits {number(turn.selected)}"
    if isinstance(turn.admitted, Raised):
        if turn.server.cp_size == 1 or not turn.why_eager:  # where eager was due, that is for replay.safe-fallback
            yield f"rank {turn.rank} raised at admission: {what(turn.admitted)}"
    elif isinstance(turn.loaded, Raised):
        yield f"{admits}, replay raised {what(turn.loaded)}"
    elif turn.admitted and (turn.loaded is None or turn.loaded.bucket != turn.selected):
        yield f"{admits}, replays {number(turn.loaded.bucket if turn.loaded else None)}"
    if isinstance(turn.refused, Loaded) and turn.why_eager == "CP not active":
        fed = f"{turn.refused.live_rows} unsharded rows to bucket {turn.refused.bucket}"
        yield f"CP not active, rank {turn.rank} feeds {fed}"


@replay("replay.safe-fallback", unknown_lengths, an_inactive_batch, sources="20441 32606 38603")
def safe_fallback(turn: Turn) -> Sentences:
    """Unknown capacity, missing lengths, inactive CP, a strategy the engine declares no graphs for: eager, no
    exception."""
    unknown = f"rows of bucket {turn.replays} unknown" if isinstance(turn.replays, int) and turn.rows is None else ""
    why = turn.why_eager or unknown
    if turn.server.cp_size == 1 or not why or turn.admitted is False:
        return  # without CP there are no rows to know and nothing to be active
    if isinstance(turn.admitted, Raised):
        yield f"{why}: rank {turn.rank} raised {what(turn.admitted)}"
    else:
        yield f"{why}, rank {turn.rank} admits {number(turn.replays)}"
