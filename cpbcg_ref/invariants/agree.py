"""agree.*: every rank decides alone, and all decide the same. Refusing alike is agreement too."""

from collections.abc import Callable
from functools import wraps

from cpbcg_ref.answers import BatchSeen, Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import ReplayCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import about, invariant, number, part, some_turn
from cpbcg_ref.invariants.model import Check

Say = Callable[[BatchSeen, int], str]  # what one rank decided about a batch, in words that must be equal


def mode(seen: BatchSeen, rank: int) -> str:
    """All ranks choose the same of graph and eager, from shared values only."""
    admitted = seen.admitted[rank]
    return f"raises {admitted.kind}" if isinstance(admitted, Raised) else "replays" if admitted else "runs eager"


def bucket(seen: BatchSeen, rank: int) -> str:
    """All ranks choose the same bucket, from shared values only."""
    chosen, loaded = seen.bucket[rank], seen.loaded[rank]
    replays = f", replays bucket {loaded.bucket}" if isinstance(loaded, Loaded) and loaded.bucket != chosen else ""
    return f"selects {number(chosen)}{replays}"


def collectives(seen: BatchSeen, rank: int) -> str:
    """All ranks issue the same sequence of collectives.

    A sequence is told by what is gathered and by the rows that each rank must bring.
    """
    admitted, active, loaded = seen.admitted[rank], seen.active[rank], seen.loaded[rank]
    if isinstance(loaded, Loaded):
        return f"replays bucket {loaded.bucket} of {loaded.captured_rows} rows"
    for answer in (admitted, loaded, active):
        if isinstance(answer, Raised):
            return f"stops with {answer.kind}"
    return "gathers its shards" if active else "gathers nothing"


def alike(say: Say) -> Check:
    @wraps(say)
    def check(case: ReplayCase, seen: ReplaySeen, contract: Contract) -> str | None:
        for batch, got in zip(case.batches, seen.batches, strict=True):
            said = [say(got, rank) for rank in range(case.server.cp_size)]
            for rank, other in enumerate(said):
                if other != said[0]:
                    return about(f"rank 0 {said[0]}, rank {rank} {other}", batch.lengths, case.server.cp_size)
        return None

    return check


BOTH = {
    "a_batch_is_replayed": some_turn(lambda turn: turn.admitted is True),
    "a_batch_runs_eager": some_turn(lambda turn: turn.admitted is False),
}
INVARIANTS = [
    invariant(
        "agree.bucket",
        part("replay", alike(bucket), **BOTH),
        sources="sglang#37561 sglang#37933 vllm#25906",
    ),
    invariant(
        "agree.mode",
        part("replay", alike(mode), **BOTH),
        sources="sglang#35640 sglang#37888 sglang#31835 Megatron-LM#3033",
    ),
    invariant(
        "agree.collectives",
        part("replay", alike(collectives), **BOTH),
        sources="sglang#24560 sglang#33865 sglang#37561 sglang#20134 sglang#30760",
    ),
]
