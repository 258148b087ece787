"""What the generators are worth: examples until a selector that is blind to rows overflows a bucket, ours and plain."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cpbcg_ref.cases import Batch, Server
from cpbcg_ref.checking.profiles import SAME_EVERYWHERE
from cpbcg_ref.faults import FAULTS
from cpbcg_ref.oracles.tokens import live_rows
from cpbcg_ref.strategies import replay_cases

BLIND = "overflow"  # the fault that is looked for
CP_SIZES = (2, 4, 8)
LADDERS = {
    "dense": (
        *range(16, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
    ),
    "sparse": (2048, 4096, 8192),
}
SEEDS = 20
MOST = {"ours": 300, "plain": 2000}  # examples; a search that finds nothing by then is counted as that many
COMPARED = [(name, cp_size, ladder) for name in reversed(MOST) for cp_size in CP_SIZES for ladder in LADDERS]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Examples to the first overflow, a number per seed; `most` where it never came."""

    generator: str
    cp_size: int
    ladder: str
    most: int
    examples: tuple[int, ...]


class Found(Exception):
    """Ends a search."""


def plain() -> st.SearchStrategy[tuple[Batch, ...]]:
    """What one writes first: any lengths, one batch per example."""
    lengths = st.lists(st.integers(1, 4096), min_size=1, max_size=64)
    return lengths.map(lambda drawn: (Batch(lengths=tuple(drawn), prefixes=(0,) * len(drawn)),))


def ours(server: Server, contract: Any) -> st.SearchStrategy[tuple[Batch, ...]]:
    """What a check asks: one to five batches per example."""
    return replay_cases(contract, server).map(lambda case: case.batches)


def measure(generator: str, cp_size: int, ladder: str) -> Measured:
    engine = FAULTS[BLIND].engine
    server = Server(cp_size=cp_size, capture_num_tokens=LADDERS[ladder], context_length=131072)
    started = engine.start(server)
    batches = plain() if generator == "plain" else ours(server, engine.contract)
    most, wrong = MOST[generator], partial(overflows, started)
    needed = tuple(search(batches, wrong, number, most) for number in range(SEEDS))
    return Measured(generator=generator, cp_size=cp_size, ladder=ladder, most=most, examples=needed)


def overflows(started: Any, batch: Batch) -> bool:
    if not started.can_run_graph(batch, 0):
        return False
    captured: dict[int, int] = dict(started.captured(0).bucket_local_tokens)
    return max(live_rows(batch.lengths, started.server.cp_size, "zigzag")) > captured[started.select(batch, 0)]


def search(
    strategy: st.SearchStrategy[tuple[Batch, ...]], wrong: Callable[[Batch], bool], number: int, most: int
) -> int:
    """Examples to the first that has a wrong batch, `most` if there is none."""
    asked, found = 0, False

    @seed(number)
    @settings(max_examples=most, phases=(Phase.generate,), suppress_health_check=list(HealthCheck), **SAME_EVERYWHERE)
    @given(strategy)
    def each(batches: tuple[Batch, ...]) -> None:
        nonlocal asked, found
        asked += not found  # a find is shown once more
        found = found or any(map(wrong, batches))
        if found:
            raise Found

    try:
        each()
    except Found:
        return asked
    return most
