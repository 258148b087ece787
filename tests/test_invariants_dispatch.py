"""Each checker of a choice of graphs on answers worked out by hand, and on dispatchers that get one thing wrong."""

from dataclasses import replace

import pytest
import toys_dispatch as toys

from cpbcg_ref.answers import DispatchSeen, Graph, Raised
from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.checking import run
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.pictures import picture
from cpbcg_ref.oracles.graphs import alike, refusals

IDS = [id for id, one in REGISTRY.items() if any(part.family == "dispatch" for part in one.parts)]
CONTRACT = toys.Toy.contract
BROKEN = Raised("KeyError", "6", "graphs.py:9")

# vLLM with 2 speculative tokens, sizes 4 and 10: 12 tokens would be over the largest size.
FULL = Graph(mode="FULL", num_tokens=6, num_requests=2, tokens_per_request=3)
SMALL, LARGE = (Graph(mode="PIECEWISE", num_tokens=size) for size in (4, 10))
TWO = (FULL, LARGE, SMALL)
DECODE = DispatchCase(
    setup="two", capture_num_tokens=(4, 10), max_requests=13, ranks=(Step(decodes=1),), tokens_per_decode=3
)
DECODES = replace(DECODE, ranks=(Step(decodes=3),))
PREFILL = replace(DECODE, ranks=(Step(prefills=(5,)),))
BOTH = replace(DECODE, ranks=(Step(decodes=1), Step(prefills=(5,))))

# Megatron-core, 2 requests, one size, matched strictly.
DECODES_ONLY = Graph(num_tokens=2, num_requests=2, num_decodes=2, num_prefills=0)
PREFILLS = Graph(num_tokens=2, num_requests=2, num_decodes=0, num_prefills=2, needs_prefill=True)
ONE = (PREFILLS, DECODES_ONLY)
STRICT = DispatchCase(setup="one", capture_num_tokens=(2,), max_requests=2, ranks=(Step(decodes=1),))
MIXED = replace(STRICT, ranks=(Step(decodes=1, prefills=(1,)),))
APART = replace(STRICT, ranks=(*STRICT.ranks, *MIXED.ranks))


def verdict(id, case, *chosen, captured=None, **seen):
    part = next(part for part in REGISTRY[id].parts if part.family == "dispatch")
    graphs = captured or (TWO if case.setup == "two" else ONE)
    return part.check(case, DispatchSeen(captured=graphs, **({"chosen": chosen, "again": chosen} | seen)), CONTRACT)


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        (DECODE, [FULL]),
        (DECODES, [LARGE]),
        (PREFILL, [LARGE]),
        (BOTH, [LARGE, LARGE]),
        (replace(DECODE, excluded=("FULL",)), [SMALL]),
        (replace(DECODE, allowed=("FULL",), excluded=("FULL",)), [None]),
        (replace(DECODE, ranks=(Step(decodes=1), Step(decodes=2))), [FULL, FULL]),
        (replace(DECODE, ranks=(Step(decodes=1), Step(prefills=(11,)))), [None, None]),
        (STRICT, [DECODES_ONLY]),
        (MIXED, [None]),
        (APART, [None, None]),
        (replace(STRICT, ranks=(Step(prefills=(1, 1)),)), [PREFILLS]),
    ],
)
def test_the_right_choice_is_accepted(id, case, chosen):
    assert verdict(id, case, *chosen) is None


ON_ONE = "rank 0 of 1: {} for 1 decode of 3: {}"


@pytest.mark.parametrize(
    ("id", "case", "chosen", "sentence"),
    [
        ("select.fits-tokens", PREFILL, [SMALL], "rank 0 of 1: PIECEWISE 4 for prefill 5: too few tokens: 5 needed"),
        ("select.captured", DECODE, [replace(SMALL, num_tokens=3)], ON_ONE.format("PIECEWISE 3", "not captured")),
        (
            "select.captured",
            PREFILL,
            [FULL],
            "rank 0 of 1: FULL 6 for prefill 5: captured for requests of 3 tokens",
        ),
        (
            "select.captured",
            replace(DECODE, excluded=("FULL",)),
            [FULL],
            ON_ONE.format("FULL 6", "the caller does not want FULL"),
        ),
        (
            "select.captured",
            replace(DECODE, allowed=("PIECEWISE",)),
            [FULL],
            ON_ONE.format("FULL 6", "the caller does not want FULL"),
        ),
        (
            "select.captured",
            replace(STRICT, ranks=(Step(decodes=1, prefills=(1,)),)),
            [PREFILLS],
            "rank 0 of 1: graph 2 for 1 decode, prefill 1: captured for 0 decodes",
        ),
        (
            "select.captured",
            STRICT,
            [PREFILLS],
            "rank 0 of 1: graph 2 for 1 decode: captured for 0 decodes",
        ),
        (
            "select.captured",
            replace(STRICT, ranks=(Step(prefills=(1, 1, 1)),)),
            [PREFILLS],
            "rank 0 of 1: graph 2 for prefills 1,1,1: captured for 2 requests",
        ),
        (
            "select.captured",
            replace(STRICT, ranks=(Step(prefills=(1,)),)),
            [DECODES_ONLY],
            "rank 0 of 1: graph 2 for prefill 1: captured for 0 prefills",
        ),
        (
            "select.minimal",
            replace(DECODE, excluded=("FULL",)),
            [LARGE],
            ON_ONE.format("PIECEWISE 10", "PIECEWISE 4 is enough"),
        ),
        ("select.complete", DECODE, [SMALL], ON_ONE.format("PIECEWISE 4", "FULL 6 fits")),
        ("select.complete", DECODES, [None], "rank 0 of 1: eager for 3 decodes of 3: PIECEWISE 10 fits"),
        ("select.complete", BOTH, [None, None], "rank 0 of 2: eager for 1 decode of 3: PIECEWISE 10 fits"),
        ("agree.bucket", BOTH, [SMALL, LARGE], "rank 0 replays 4, rank 1 replays 10 (1 decode of 3 / prefill 5)"),
        (
            "agree.mode",
            BOTH,
            [FULL, LARGE],
            "rank 0 replays FULL, rank 1 replays PIECEWISE (1 decode of 3 / prefill 5)",
        ),
        (
            "agree.mode",
            APART,
            [DECODES_ONLY, None],
            "rank 0 replays, rank 1 runs eager (1 decode / 1 decode, prefill 1)",
        ),
        (
            "agree.mode",
            APART,
            [None, BROKEN],
            "rank 0 runs eager, rank 1 raises KeyError (1 decode / 1 decode, prefill 1)",
        ),
    ],
)
def test_one_wrong_choice_is_told_with_its_numbers(id, case, chosen, sentence):
    assert verdict(id, case, *chosen) == sentence


@pytest.mark.parametrize("id", [id for id in IDS if id.startswith("select.")])
def test_a_dispatcher_that_raises_has_not_chosen(id):
    assert verdict(id, DECODE, BROKEN) == "dispatch: rank 0 raised KeyError: 6"


def test_a_changed_argument_and_another_answer_are_told():
    assert verdict("select.pure", DECODE, FULL, mutated="allowed") == (
        "the dispatcher changed its argument allowed (1 decode of 3)"
    )
    assert verdict("select.pure", DECODE, chosen=(FULL,), again=(None,)) == (
        "rank 0: FULL 6, asked again eager (1 decode of 3)"
    )


@pytest.mark.parametrize(
    ("graph", "step", "reasons"),
    [
        (FULL, Step(decodes=2), []),
        (FULL, Step(decodes=3), ["too few tokens: 9 needed", "captured for 2 requests"]),
        (FULL, Step(prefills=(3,)), []),  # told by the tokens of a request, not by its kind
        (FULL, Step(decodes=1, prefills=(1,)), ["captured for requests of 3 tokens"]),
        (SMALL, Step(prefills=(1, 1, 2)), []),
        (PREFILLS, Step(prefills=(1, 1)), []),
        (replace(LARGE, needs_prefill=True), Step(decodes=1), ["captured for steps with a prefill"]),
        (replace(LARGE, needs_prefill=True), Step(decodes=1, prefills=(1,)), []),
    ],
)
def test_what_a_graph_can_run_is_told_by_what_it_was_captured_for(graph, step, reasons):
    assert refusals(graph, step, tokens_per_decode=3) == reasons


def test_of_graphs_that_all_ranks_can_replay_the_best_is_first():
    modes = ("FULL", "PIECEWISE")
    assert list(map(str, alike(DECODE, TWO, modes))) == ["FULL 6", "PIECEWISE 4", "PIECEWISE 10"]
    assert list(map(str, alike(BOTH, TWO, modes))) == ["PIECEWISE 10"]
    assert list(map(str, alike(replace(DECODE, excluded=("FULL",)), TWO, modes))) == ["PIECEWISE 4", "PIECEWISE 10"]
    assert alike(APART, ONE, ("",)) == []


def test_the_picture_shows_every_rank_and_what_was_captured():
    seen = DispatchSeen(captured=ONE, chosen=(DECODES_ONLY, None), again=(DECODES_ONLY, None))
    assert picture(APART, seen, CONTRACT).splitlines() == [
        "rank  decodes  prefills  tokens  replays  could run in",
        "0     1        ()        1       graph 2  graph 2",
        "1     1        (1,)      2       eager    -",
        "",
        "graph    requests  decodes  prefills  tokens each  steps",
        "graph 2  2         0        2         -            with a prefill",
        "graph 2  2         2        0         -            any",
    ]


def failed(engine, seed=0, profile="dev"):
    """Ids that this dispatcher violates, and all results."""
    checker = run.Checker(engine=engine, target="toy", profile=profile, seed=seed, recorded=0, known=frozenset(IDS))
    results = {id: checker.check(id) for id in IDS}
    return {id for id, one in results.items() if one.outcome == "fail"}, results


@pytest.mark.parametrize("toy", [toys.Toy, toys.OfOneKind])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_dispatcher_passes_and_every_interesting_case_comes_up(toy, seed, monkeypatch):
    monkeypatch.setattr(run, "ROUNDS", 1)
    results = failed(toy(), seed, "ci")[1]
    assert {id: one.outcome for id, one in results.items()} == dict.fromkeys(IDS, "pass"), results


@pytest.mark.parametrize(
    ("wrong", "ids"),
    [
        (toys.OneTooSmall, {"select.fits-tokens"}),
        (toys.BlindToKind, {"select.captured"}),
        (toys.DeafToTheCaller, {"select.captured"}),
        (toys.Inventive, {"select.captured", "select.minimal"}),
        (toys.Largest, {"select.minimal"}),
        (toys.TooCareful, {"select.minimal", "select.complete"}),
        (toys.FewestTokens, {"select.complete"}),
        (toys.EachForItself, {"agree.bucket", "agree.mode"}),
        (toys.EagerWithPrefills, {"agree.mode", "select.complete"}),
        (toys.Taking, {"select.pure"}),
        (toys.Forgetful, {"select.pure"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_dispatcher_is_rejected_for_what_it_gets_wrong(wrong, ids):
    assert failed(wrong())[0] == ids


def test_an_engine_without_a_dispatcher_is_skipped_and_the_others_say_nothing_of_it():
    class Nothing:
        name, version, roots, contract = "nothing", "1", (__file__,), Contract()

    found = run.Checker(engine=Nothing(), target="nothing", profile="dev").check("agree.mode")
    assert (found.outcome, found.message) == ("skip", "the adapter has no start")
    reference = run.Checker(engine=toys.Toy(), target="toy", profile="dev").check("select.fits-tokens")
    assert (reference.outcome, reference.message) == ("pass", "")


def test_a_ladder_that_is_not_captured_is_no_case(monkeypatch):
    class Raising(toys.Toy):
        def capture(self, case):
            raise ValueError("no graph")

    monkeypatch.setattr(run, "ROUNDS", 1)
    checker = run.Checker(engine=Raising(), target="toy", profile="dev")
    assert checker.check("select.minimal").outcome == "unwitnessed"


LARGE_PREFILL = replace(DECODE, ranks=(Step(prefills=(10,)),))
PREFILLS_APART = replace(DECODE, ranks=(Step(prefills=(1,)), Step(prefills=(5,))))


def met(name, case, captured=None):
    (witness,) = {part.witnesses[name] for id in IDS for part in REGISTRY[id].parts if name in part.witnesses}
    graphs = captured or (TWO if case.setup == "two" else ONE)
    nothing = (None,) * len(case.ranks)
    return witness(case, DispatchSeen(captured=graphs, chosen=nothing, again=nothing))


@pytest.mark.parametrize(
    ("name", "case", "unmet"),
    [
        ("a step is as large as a graph", replace(DECODE, ranks=(Step(decodes=2),)), [DECODE, PREFILL]),
        ("no graph is large enough", replace(DECODE, ranks=(Step(decodes=4),)), [DECODES, BOTH, LARGE_PREFILL]),
        (
            "decodes need the second smallest graph",
            replace(DECODE, ranks=(Step(decodes=2),)),
            [DECODE, DECODES, PREFILL, STRICT],
        ),
        ("a graph of another kind is too narrow", MIXED, [replace(DECODE, ranks=(Step(decodes=2),))]),
        ("a lesser graph has fewer tokens", DECODE, [replace(DECODE, excluded=("FULL",)), DECODES, BOTH, STRICT]),
        (
            "a mode is ruled out",
            replace(DECODE, allowed=("PIECEWISE",)),
            [DECODE, replace(DECODE, allowed=("FULL", "PIECEWISE"))],
        ),
        ("ranks have work of different kinds", APART, [DECODE, replace(STRICT, ranks=STRICT.ranks * 2)]),
        ("ranks differ in tokens", APART, [DECODE, replace(STRICT, ranks=STRICT.ranks * 2)]),
        (
            "alone they would take different sizes",
            replace(DECODE, ranks=(Step(decodes=2), Step(prefills=(1,)))),
            [replace(DECODE, ranks=(Step(decodes=3), Step(prefills=(5,)))), PREFILLS_APART, DECODE, APART],
        ),
    ],
)
def test_an_interesting_step_is_told_from_its_neighbours(name, case, unmet):
    assert [met(name, one) for one in (case, *unmet)] == [True] + [False] * len(unmet)
