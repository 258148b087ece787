"""select.* and agree.* once more, of engines that choose a graph for a whole step: decodes and prefills, on every rank
of a group that goes in step. What a graph can run is told by what it was captured for."""

from collections.abc import Callable
from functools import partial

from cpbcg_ref.answers import DispatchSeen, Graph, Raised
from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import fitted, raised
from cpbcg_ref.invariants.model import Judge, Sentences, invariant, only_if
from cpbcg_ref.oracles.graphs import alike, refusals, ruled_out, tokens

Choice = Graph | None


def shown(chosen: Choice | Raised) -> str:
    """Such as "FULL 6", "graph 8" where there is one mode, "eager"."""
    if isinstance(chosen, Raised):
        return chosen.kind
    return str(chosen) if chosen else "eager"


def spelled(step: Step, case: DispatchCase) -> str:
    """Such as "2 decodes of 3, prefills 5,7"."""
    each = f" of {case.tokens_per_decode}" if case.tokens_per_decode > 1 else ""
    decodes = f"{step.decodes} decode{'s' * (step.decodes > 1)}{each}" if step.decodes else ""
    prefills = f"prefill{'s' * (len(step.prefills) > 1)} {','.join(map(str, step.prefills))}" if step.prefills else ""
    return ", ".join(filter(None, (decodes, prefills)))


def best(case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Choice:
    """What every rank should replay; of its kind, only mode and tokens are meant."""
    return next(iter(alike(case, seen.captured, contract.dispatchers[case.setup].modes)), None)


def each_choice(judge: Callable[[Choice, Step, DispatchCase, DispatchSeen, Contract], Sentences]) -> Judge:
    """Judges the choice of every rank; a refusal to choose is a violation."""

    def check(case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
        yield from raised("dispatch", seen.chosen)
        for rank, (step, chosen) in enumerate(zip(case.ranks, seen.chosen, strict=True)):
            if not isinstance(chosen, Raised):
                who = f"rank {rank} of {len(case.ranks)}: {shown(chosen)} for {spelled(step, case)}"
                yield from (fitted(f"{who}: {wrong}") for wrong in judge(chosen, step, case, seen, contract))

    return check


dispatch = partial(invariant, family="dispatch")
choose = partial(dispatch, each=each_choice)


def some_graph_has_limits(contract: Contract) -> bool:
    return any(one.limits for one in contract.dispatchers.values())


def a_step_is_as_large_as_a_graph(case: DispatchCase, seen: DispatchSeen) -> bool:
    sizes = {graph.num_tokens for graph in seen.captured}
    return any(tokens(step, case.tokens_per_decode) in sizes for step in case.ranks)


def no_graph_is_large_enough(case: DispatchCase, seen: DispatchSeen) -> bool:
    most = max((graph.num_tokens for graph in seen.captured), default=0)
    return any(tokens(step, case.tokens_per_decode) > most for step in case.ranks)


def decodes_need_the_second_smallest_graph(case: DispatchCase, seen: DispatchSeen) -> bool:
    sizes = sorted({graph.num_tokens for graph in seen.captured if graph.num_decodes != 0})[:2]
    alone = [tokens(step, case.tokens_per_decode) for step in case.ranks if not step.prefills]
    return len(sizes) == 2 and any(sizes[0] < need <= sizes[1] for need in alone)


@only_if(some_graph_has_limits)
def a_graph_of_another_kind_is_too_narrow(case: DispatchCase, seen: DispatchSeen) -> bool:
    """A graph has tokens enough and was captured for other requests, or for fewer."""
    how = {"tokens_per_decode": case.tokens_per_decode}
    why = [refusals(graph, step, **how) for graph in seen.captured for step in case.ranks]
    return any(reasons and not reasons[0].startswith("too few tokens") for reasons in why)


@only_if(lambda contract: any(len(one.modes) > 1 for one in contract.dispatchers.values()))
def a_lesser_graph_has_fewer_tokens(case: DispatchCase, seen: DispatchSeen) -> bool:
    """Two modes can run the step, and the one that saves less has a smaller graph."""
    smallest: dict[str, int] = {}
    for graph in alike(case, seen.captured, [*dict.fromkeys(graph.mode for graph in seen.captured)]):
        smallest.setdefault(graph.mode, graph.num_tokens)
    return len(set(smallest.values())) > 1


@only_if(lambda contract: any(one.choosable for one in contract.dispatchers.values()))
def a_mode_is_ruled_out(case: DispatchCase, seen: DispatchSeen) -> bool:
    return any(ruled_out(case, graph.mode) for graph in seen.captured)


def ranks_have_work_of_different_kinds(case: DispatchCase, seen: DispatchSeen) -> bool:
    return len({(step.decodes > 0, bool(step.prefills)) for step in case.ranks}) > 1


def ranks_differ_in_tokens(case: DispatchCase, seen: DispatchSeen) -> bool:
    return len({tokens(step, case.tokens_per_decode) for step in case.ranks}) > 1


@only_if(some_graph_has_limits)
def alone_they_would_take_different_sizes(case: DispatchCase, seen: DispatchSeen) -> bool:
    """Padded to the largest rank, the smallest graph for each rank's kind of work is not of the same size for all."""
    most = max(tokens(step, case.tokens_per_decode) for step in case.ranks)
    large = [graph for graph in seen.captured if graph.num_tokens >= most]
    how = {"tokens_per_decode": case.tokens_per_decode}
    able = [[graph.num_tokens for graph in large if not refusals(graph, step, **how)] for step in case.ranks]
    return all(able) and len(set(map(min, able))) > 1


@choose("select.fits-tokens", a_step_is_as_large_as_a_graph, no_graph_is_large_enough)
def fits_tokens(chosen: Choice, step: Step, case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    need = tokens(step, case.tokens_per_decode)
    if chosen and chosen.num_tokens < need:
        yield f"too few tokens: {need} needed"


@choose("select.captured", a_graph_of_another_kind_is_too_narrow, a_mode_is_ruled_out)
def captured(chosen: Choice, step: Step, case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    """What was captured for other requests, or is of a mode that the caller does not want, was not captured for this
    step."""
    if not chosen:
        return
    if chosen not in seen.captured:
        yield "not captured"
    if ruled_out(case, chosen.mode):
        yield f"the caller does not want {chosen.mode}"
    for reason in refusals(chosen, step, tokens_per_decode=case.tokens_per_decode):
        if not reason.startswith("too few tokens"):
            yield reason


@choose("select.minimal", decodes_need_the_second_smallest_graph)
def minimal(chosen: Choice, step: Step, case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    enough = best(case, seen, contract)
    if chosen and enough and chosen.mode == enough.mode and chosen.num_tokens > enough.num_tokens:
        yield f"{enough} is enough"


@choose("select.complete", a_step_is_as_large_as_a_graph, a_lesser_graph_has_fewer_tokens, sources="vllm#53407")
def complete(chosen: Choice, step: Step, case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    """Neither eager nor a mode that saves less is chosen where every rank could replay a better graph."""
    modes, fits = contract.dispatchers[case.setup].modes, best(case, seen, contract)
    if fits and (not chosen or modes.index(chosen.mode) > modes.index(fits.mode)):
        yield f"{fits} fits"


@dispatch("select.pure", a_mode_is_ruled_out, once=True, a_step_is_as_large_as_a_graph=a_step_is_as_large_as_a_graph)
def pure(case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    yield from raised("dispatch", seen.chosen)
    if seen.mutated:
        yield f"the dispatcher changed its argument {seen.mutated} ({spelled(case.ranks[0], case)})"
    for rank, (first, again) in enumerate(zip(seen.chosen, seen.again, strict=True)):
        if first != again:
            yield f"rank {rank}: {shown(first)}, asked again {shown(again)} ({spelled(case.ranks[rank], case)})"


def differing(case: DispatchCase, seen: DispatchSeen, say: Callable[[Choice | Raised], str]) -> Sentences:
    """A sentence for the first two ranks of which not the same can be said; "" says nothing of a rank."""
    said = [(rank, text) for rank, chosen in enumerate(seen.chosen) if (text := say(chosen))]
    for rank, text in said[1:]:
        if text != said[0][1]:
            both = " / ".join(spelled(case.ranks[one], case) for one in (said[0][0], rank))
            yield fitted(f"rank {said[0][0]} {said[0][1]}, rank {rank} {text}", both)


@dispatch("agree.bucket", ranks_differ_in_tokens, alone_they_would_take_different_sizes, sources="Megatron-LM#3033")
def bucket(case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    """Ranks that replay have graphs of as many tokens."""
    return differing(case, seen, lambda chosen: f"replays {chosen.num_tokens}" if isinstance(chosen, Graph) else "")


@dispatch("agree.mode", ranks_have_work_of_different_kinds, sources="Megatron-LM#4258")
def mode(case: DispatchCase, seen: DispatchSeen, contract: Contract) -> Sentences:
    def say(chosen: Choice | Raised) -> str:
        if isinstance(chosen, Raised):
            return f"raises {chosen.kind}"
        return "replays" + f" {chosen.mode}" * bool(chosen.mode) if chosen else "runs eager"

    return differing(case, seen, say)
