"""`cpbcg smoke` names what is broken in an adapter, and leaves a wrong engine to `cpbcg check`."""

import inspect

import pytest

from cpbcg_ref.checking.smoke import smoke
from cpbcg_ref.engines.contract import METHODS
from cpbcg_ref.engines.reference import Reference


def line(engine, what):
    return next(line for line in smoke(engine) if line.asked == what)


def broken(**members):
    """The reference with some members replaced."""
    return type("Broken", (Reference,), members)()


def test_the_reference_is_ok_in_everything_it_offers():
    states = {line.asked: line.state for line in smoke(Reference())}
    assert states == dict.fromkeys(["attributes", *METHODS], "ok") | dict.fromkeys(Reference.unavailable, "not offered")


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"roots": ()}, "roots must be a non-empty tuple of paths, it is (): without it no exception is the engine's"),
        ({"roots": ("/no/such/folder",)}, "root '/no/such/folder' does not exist"),
        ({"unavailable": {"layuot": "x"}}, "unavailable names layuot, the capabilities are layout, gate"),
    ],
)
def test_a_broken_attribute_ends_it(members, sentence):
    only = smoke(broken(**members))
    assert [(entry.asked, entry.state) for entry in only] == [("attributes", "broken")]
    assert sentence in only[0].text


def test_a_missing_method_is_named_and_the_others_are_asked():
    one = broken(logical_rows=None)
    assert line(one, "rows") == ("not offered", "rows", "the adapter has no logical_rows")
    assert {entry.state for entry in smoke(one) if entry.asked not in ("rows", *Reference.unavailable)} == {"ok"}


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
            "shard answers ((0.0, 1, 6, 7), (2, 3, 4, 5)): it must look like ((0, 1, 6, 7), (2, 3, 4, 5))",
        ),
        (
            "layout",
            {"shard": lambda self, *a, **o: SHARD(self, *a, **o)[:1]},
            "shard answers ((0, 1, 6, 7),): it must look like ((0, 1, 6, 7), (2, 3, 4, 5))",
        ),
        (
            "layout",
            {"shard": lambda self, *a, **o: [["1"], ["2"]]},
            "calling it or reading its answer raised TypeError: unsupported",
        ),
        (
            "gate",
            {"is_cp_active": lambda self, *a, **o: 1},
            "is_cp_active answers (1, 1): it must look like (True, True)",
        ),
        (
            "keys",
            {"kv_segments": lambda self, *a, **o: [[4, 8], [4, 8]]},
            "kv_segments answers ((4, 8), (4, 8)): it must look like (((2, 2), (2, 8)), ((2, 4), (2, 6)))",
        ),
        ("rows", {"logical_rows": lambda self, *a: [4, 4]}, "calling it or reading its answer raised TypeError: "),
        (
            "capacity",
            {"required_local_tokens": lambda self, *a, **o: "4"},
            "required_local_tokens answers ('4', '4'): it must look like (4, 4)",
        ),
        ("selection", {"select_replay_bucket": lambda self, **o: [8]}, "answers [8]: it must look like 8"),
        (
            "replay",
            {"start": lambda self, server: object()},
            "raised AttributeError: 'object' object has no attribute 'captured'",
        ),
        ("attempts", {"start_attempts": lambda self: int("x")}, "raised ValueError: invalid literal"),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([True, True])},
            "step answers (True, True): it must look like (Verdict(allow=True, ",
        ),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([])},
            "step answers (): it must look like (Verdict(allow=True, ",
        ),
        (
            "votes",
            {"votes": lambda self, mid_chunk, waiting: [1, 0]},
            "votes answers (1, 0): it must look like (True, False)",
        ),
        ("attempts", {"start_attempts": lambda self: Answering(None)}, "step answers (None,): it must look like (3,)"),
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
