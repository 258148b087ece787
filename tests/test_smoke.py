"""`cpbcg smoke` names what is broken in an adapter, and leaves a wrong engine to `cpbcg check`."""

import inspect

import pytest

from cpbcg_ref.checking.smoke import smoke
from cpbcg_ref.engines.reference import Reference


def line(engine, what):
    return next(line for line in smoke(engine) if line.what == what)


def broken(**members):
    """The reference with some members replaced."""
    return type("Broken", (Reference,), members)()


def test_the_reference_is_ok_in_everything_it_offers():
    states = {line.what: line.state for line in smoke(Reference())}
    assert states.pop("data") in ("ok", "not offered")
    assert states == dict.fromkeys(
        ["attributes", "layout", "capacity", "selection", "replay", "negotiation", "attempts", "votes"], "ok"
    )


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"name": None}, "name must be a str, it is None"),
        ({"contract": {"strategies": ["zigzag"]}}, "contract must be a cpbcg_ref.engines.contract.Contract, it is {"),
        ({"roots": ()}, "roots must be a non-empty tuple of paths, it is (): without it no exception is the engine's"),
        ({"roots": ("/no/such/folder",)}, "root '/no/such/folder' does not exist"),
        ({"unavailable": {"layuot": "x"}}, "unavailable names layuot, the capabilities are layout, capacity"),
    ],
)
def test_a_broken_attribute_ends_it(members, sentence):
    only = smoke(broken(**members))
    assert [(entry.what, entry.state) for entry in only] == [("attributes", "broken")]
    assert sentence in only[0].text


def test_a_missing_method_is_named():
    found = line(broken(gather=None), "layout")
    assert found.state == "broken"
    assert found.text.endswith("the adapter lacks gather")


def test_what_the_engine_declares_unavailable_is_not_offered_with_its_reason():
    found = line(broken(unavailable={"replay": "this release has no graphs"}), "replay")
    assert (found.state, found.text) == ("not offered", "this release has no graphs")


def test_a_capability_without_any_method_is_not_offered():
    assert line(broken(start_attempts=None), "attempts").state == "not offered"


SHARD = Reference.shard


@pytest.mark.parametrize(
    ("what", "members", "sentence"),
    [
        ("layout", {"shard": lambda self, *a, **o: SHARD(self, *a, **o)[::-1]}, "the ranks are swapped, rank 0 owns"),
        (
            "layout",
            {"shard": lambda self, *a, **o: [[1, 2, 3, 4], [1, 2, 3, 4]]},
            "these are local row numbers, hand back the payload",
        ),
        ("layout", {"shard": lambda self, *a, **o: [[1, 2, 7, 99], [3, 4, 5, 6]]}, "some are no token of the payload"),
        (
            "layout",
            {"shard": lambda self, *a, **o: [[1.0, 2, 7, 8], [3, 4, 5, 6]]},
            "every entry must be a list of ints",
        ),
        (
            "layout",
            {"shard": lambda self, *a, **o: SHARD(self, *a, **o)[:1]},
            "it needs 2 entries, one per rank or step",
        ),
        (
            "layout",
            {"shard": lambda self, *a, **o: [["1"], ["2"]]},
            "calling it or reading its answer failed: TypeError: unsupported",
        ),
        (
            "layout",
            {"is_cp_active": lambda self, *a, **o: 1},
            "is_cp_active answers (1, 1): every entry must be a bool",
        ),
        (
            "layout",
            {"kv_segments": lambda self, *a, **o: [[4, 8], [4, 8]]},
            "every entry must be a list of (rows, keys)",
        ),
        ("layout", {"logical_rows": lambda self, *a: [4, 4]}, "calling it or reading its answer failed: TypeError: "),
        ("capacity", {"required_local_tokens": lambda self, *a, **o: "4"}, "every entry must be an int or None"),
        ("selection", {"select_replay_bucket": lambda self, **o: 9}, "answers (9,): every entry must be 8, 16 or None"),
        (
            "replay",
            {"start": lambda self, server: object()},
            "failed: AttributeError: 'object' object has no attribute 'captured'",
        ),
        ("attempts", {"start_attempts": lambda self: int("x")}, "the adapter raised ValueError: invalid literal"),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([True, True])},
            "every entry must be a Verdict",
        ),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([])},
            "it needs 2 entries, one per rank or step",
        ),
        (
            "votes",
            {"votes": lambda self, mid_chunk, waiting: [1, 0]},
            "votes answers (1, 0): every entry must be a bool",
        ),
        ("attempts", {"start_attempts": lambda self: Answering(None)}, "every entry must be an int"),
    ],
)
def test_what_only_a_broken_adapter_answers_is_named(what, members, sentence):
    found = line(broken(**members), what)
    assert found.state == "broken"
    assert sentence in found.text


class Answering:
    def __init__(self, answer):
        self.answer = answer

    def step(self, _):
        return self.answer


def test_an_engine_that_raises_on_the_simplest_batch_points_at_what_it_was_given():
    def shard(self, *args, **options):
        raise KeyError("tokens")

    found = line(broken(shard=shard, roots=(inspect.getfile(shard),)), "layout")
    assert found.state == "broken"
    assert "shard: the engine raised KeyError: 'tokens' (test_smoke.py:" in found.text
    assert found.text.endswith("look at what the adapter hands to it")


def test_a_wrong_engine_is_left_to_check():
    halves = [[1, 2, 3, 4], [5, 6, 7, 8]]
    found = line(broken(shard=lambda self, *a, **o: halves, gather=lambda self, *a, **o: [[1] * 8] * 2), "layout")
    assert (found.state, found.text) == ("ok", "")
