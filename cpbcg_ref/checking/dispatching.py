"""What the answers of a dispatcher to one small step show that is the adapter's mistake and not the engine's."""

from typing import Any

from cpbcg_ref.answers import DispatchSeen, Graph, Raised
from cpbcg_ref.asking import CaptureFailed, ask_dispatch
from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.engines.contract import Dispatcher

RANKS = 2


def misdispatched(engine: Any) -> str | None:
    """The first mistake, of all the ways in which the dispatcher can be set up."""
    if not engine.contract.dispatchers:
        return "the contract names no dispatchers: declare Contract(dispatchers={name: Dispatcher(...)})"
    for setup, how in engine.contract.dispatchers.items():
        try:
            seen = ask_dispatch(engine, step(setup, how))
        except CaptureFailed as refused:
            return f"{setup}: the engine raised {refused}: look at what the adapter hands to it"
        if problem := wrong_graphs(seen, how) or wrong_choices(seen):
            return f"{setup}: {problem}"
    return None


def step(setup: str, how: Dispatcher) -> DispatchCase:
    """Two decodes on every rank, of four that there is one graph for."""
    each = how.tokens_per_decode[0]
    ranks = (Step(decodes=2),) * RANKS
    return DispatchCase(
        setup=setup, capture_num_tokens=(4 * each,), max_requests=4, ranks=ranks, tokens_per_decode=each
    )


def wrong_graphs(seen: DispatchSeen, how: Dispatcher) -> str | None:
    captured = "start_dispatcher(...).captured"
    for graph in seen.captured:
        if not isinstance(graph, Graph):
            return f"{captured} answers {graph!r}: it must be a cpbcg_ref.answers.Graph"
        if graph.mode not in how.modes:
            return f"{captured} answers a graph of the mode {graph.mode!r}: the contract names {', '.join(how.modes)}"
        if not how.limits and graph != Graph(num_tokens=graph.num_tokens, mode=graph.mode):
            return f"{captured} answers {graph!r}: declare Dispatcher(limits=True), it has others than its tokens"
    return None if seen.captured else f"{captured} answers no graph for 4 decodes"


def wrong_choices(seen: DispatchSeen) -> str | None:
    choice = "start_dispatcher(...).dispatch"
    if len(seen.chosen) != RANKS:
        return f"{choice} answers for {len(seen.chosen)} of {RANKS} ranks: answer for all of them at once, in order"
    wrong = [one for one in seen.chosen if not isinstance(one, Graph | Raised | None)]
    return f"{choice} answers {wrong[0]!r}: it must be a Graph, or None for eager" if wrong else None
