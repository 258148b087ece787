"""Which captured graph may run a step of decodes and prefills: every graph is looked at, told by what it was captured
for."""

from collections.abc import Sequence

from cpbcg_ref.answers import Graph
from cpbcg_ref.cases import DispatchCase, Step


def tokens(step: Step, tokens_per_decode: int) -> int:
    """How many tokens a step has.

    >>> tokens(Step(decodes=2, prefills=(5,)), 3)
    11
    """
    return step.decodes * tokens_per_decode + sum(step.prefills)


def refusals(graph: Graph, step: Step, *, tokens_per_decode: int) -> list[str]:
    """Why this graph cannot run the step, one reason per limit of the graph; none if it can."""
    need, requests = tokens(step, tokens_per_decode), step.decodes + len(step.prefills)
    lengths = {tokens_per_decode for _ in range(step.decodes)} | set(step.prefills)
    limits = {
        f"too few tokens: {need} needed": need > graph.num_tokens,
        f"captured for {graph.num_requests} requests": over(requests, graph.num_requests),
        f"captured for {graph.num_decodes} decodes": over(step.decodes, graph.num_decodes),
        f"captured for {graph.num_prefills} prefills": over(len(step.prefills), graph.num_prefills),
        "captured for steps with a prefill": graph.needs_prefill and not step.prefills,
        f"captured for requests of {graph.tokens_per_request} tokens": graph.tokens_per_request is not None
        and lengths != {graph.tokens_per_request},
    }
    return [reason for reason, broken in limits.items() if broken]


def over(number: int, limit: int | None) -> bool:
    return limit is not None and number > limit


def ruled_out(case: DispatchCase, mode: str) -> bool:
    """Does the caller not want graphs of this mode."""
    return mode in case.excluded or (bool(case.allowed) and mode not in case.allowed)


def alike(case: DispatchCase, captured: Sequence[Graph], modes: Sequence[str]) -> list[Graph]:
    """Mode and tokens of the graphs that every rank could replay in this step, the best first: of the first of `modes`,
    then with the fewest tokens. The ranks go in step, so all of them are padded to the same size."""
    how = {"tokens_per_decode": case.tokens_per_decode}
    wanted = [graph for graph in captured if not ruled_out(case, graph.mode)]
    able = [{(one.mode, one.num_tokens) for one in wanted if not refusals(one, step, **how)} for step in case.ranks]
    together = sorted(set.intersection(*able), key=lambda graph: (modes.index(graph[0]), graph[1]))
    return [Graph(mode=mode, num_tokens=size) for mode, size in together]
