"""`cpbcg smoke` of an engine that chooses graphs for steps."""

import pytest
from toys_dispatch import Started, Toy

from cpbcg_ref.answers import Graph
from cpbcg_ref.checking.smoke import smoke
from cpbcg_ref.engines.contract import Contract, Dispatcher

UNLIMITED = Contract(dispatchers={"one": Dispatcher(even=True, limits=False)})


def told(**members):
    """What is said of the capability, of the toy with some members replaced."""
    engine = type("Engine", (Toy,), members)()
    line = next(line for line in smoke(engine) if line.asked == "dispatch")
    return line.state, line.text


def started(**members):
    made = type("Changed", (Started,), members)
    return {"start_dispatcher": lambda self, case: made(self, case)}


def refusing(self, case):
    raise ValueError("no graphs")


RAISES = f"test_smoke_dispatch.py:{refusing.__code__.co_firstlineno + 1}"


def test_a_right_one_is_ok():
    assert told() == ("ok", "")


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            {"contract": Contract()},
            "the contract names no dispatchers: declare Contract(dispatchers={name: Dispatcher(...)})",
        ),
        (
            {"start_dispatcher": refusing},
            f"two: the engine raised ValueError: no graphs ({RAISES}): look at what the adapter hands to it",
        ),
        (
            started(captured=lambda self: [4]),
            "two: start_dispatcher(...).captured answers 4: it must be a cpbcg_ref.answers.Graph",
        ),
        (
            started(captured=lambda self: [Graph(num_tokens=4)]),
            "two: start_dispatcher(...).captured answers a graph of the mode '': the contract names FULL, PIECEWISE",
        ),
        (
            {"contract": UNLIMITED},
            "one: start_dispatcher(...).captured answers Graph(num_tokens=4, mode='', num_requests=4, num_decodes=4, "
            "num_prefills=0, needs_prefill=False, tokens_per_request=None): declare Dispatcher(limits=True), it has "
            "others than its tokens",
        ),
        (started(captured=lambda self: []), "two: start_dispatcher(...).captured answers no graph for 4 decodes"),
        (
            started(dispatch=lambda self: [None]),
            "two: start_dispatcher(...).dispatch answers for 1 of 2 ranks: answer for all of them at once, in order",
        ),
        (
            started(dispatch=lambda self: [None, 4]),
            "two: start_dispatcher(...).dispatch answers 4: it must be a Graph, or None for eager",
        ),
    ],
)
def test_a_broken_one_is_told_with_what_to_mend(members, text):
    roots = {"roots": (__file__, *Toy.roots)}
    assert told(**roots, **members) == ("broken", text)
