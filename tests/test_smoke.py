"""`cpbcg smoke` says what to change in a broken adapter, and leaves a wrong engine to `cpbcg check`."""

import json

import numpy
import pytest
from toys import Toy

from cpbcg_ref.answers import Raised
from cpbcg_ref.checking.smoke import smoke
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.engines.targets import resolve

SHARD, POSITIONS, SEGMENTS = Toy.shard, Toy.shard_positions, Toy.kv_segments


def line(engine, what):
    return next(line for line in smoke(engine) if line.asked == what)


def broken(**members):
    """The toy, which is an engine in another file, with some members replaced here."""
    return type("Broken", (Toy,), members)()


def told(what, **members):
    found = line(broken(**members), what)
    assert found.state == "broken"
    return found.text


def test_the_reference_is_ok_in_everything_it_offers():
    states = {line.asked: line.state for line in smoke(Reference())}
    for absent in ("lengths", "data", "dispatch"):
        assert states.pop(absent) == "not offered"
    asked = ["attributes", "contract", "layout", "gate", "rows", "positions", "gather", "keys", "captured-rows"]
    asked += ["capacity", "selection", "replay", "negotiation", "attempts", "votes"]
    assert states == dict.fromkeys(asked, "ok")


@pytest.mark.parametrize(
    ("about", "members", "sentence"),
    [
        (
            "attributes",
            {"roots": ()},
            "roots must be a non-empty tuple of paths, it is (): without it no exception is the engine's",
        ),
        ("attributes", {"roots": ("/no/such/folder",)}, "root '/no/such/folder' does not exist"),
        ("attributes", {"unavailable": {"layuot": "x"}}, "unavailable names layuot, the capabilities are layout, gate"),
        (
            "attributes",
            {"unavailable": {"replay": ""}},
            "unavailable is {'replay': ''}: it is a dict that has a reason for each capability in it",
        ),
        (
            "attributes",
            {"unavailable": ["replay"]},
            "unavailable is ['replay']: it is a dict that has a reason for each",
        ),
        ("contract", {"contract": Contract(strategies="zigzag")}, "strategies is 'zigzag': write a tuple, ('zigzag',)"),
        ("contract", {"contract": Contract(cp_sizes=4)}, "cp_sizes is 4: write a tuple, (4,)"),
        ("contract", {"contract": Contract(cp_sizes=())}, "strategies and cp_sizes must name one at least"),
        (
            "contract",
            {"contract": Contract(strategies=("ring",))},
            "it declares the strategy 'ring': the known ones are zigzag and interleave",
        ),
        (
            "contract",
            {"contract": Contract(strategies=("interleave",), alignment={"zigzag": 2})},
            "alignment has no entry for interleave: it is 1, or more where rows are padded to a multiple",
        ),
        ("contract", {"contract": Contract(blocks="even")}, "blocks is 'even': it is 'balanced' or 'ceil'"),
    ],
)
def test_what_cannot_be_meant_ends_it(about, members, sentence):
    only = smoke(broken(**members))
    assert [(entry.asked, entry.state) for entry in only] == [(about, "broken")]
    assert only[0].text.startswith(sentence)


def test_roots_under_which_nothing_runs_are_not_the_engines():
    assert told("attributes", roots=(json.__file__,)) == (
        f"no function under roots ({json.__file__}) ran: name the files or folders of the engine that the adapter calls"
    )


def test_a_group_size_that_the_engine_refuses_does_not_belong_into_the_contract():
    def shard(self, batch, payload, *, cp_size, strategy, captured_rows=None):
        return SHARD(self, batch, payload, cp_size={16: None}.get(cp_size, cp_size), strategy=strategy)

    text = told("contract", shard=shard)
    assert text.startswith(
        "it declares zigzag and groups of 16, where the engine raised TypeError: unsupported operand"
    )
    assert text.endswith("): leave out of strategies or cp_sizes what the engine does not have")


def test_a_capability_without_its_method_is_not_offered():
    found = line(broken(gather=None), "gather")
    assert (found.state, found.text) == ("not offered", "the adapter has no gather")


def test_a_misspelt_method_is_recognised():
    text = told("positions", shard_positions=None, shard_position=POSITIONS)
    assert text == "the adapter has no shard_positions: call its shard_position so"


def test_what_the_engine_declares_unavailable_is_not_offered_with_its_reason():
    found = line(broken(unavailable={"replay": "this release has no graphs"}), "replay")
    assert (found.state, found.text) == ("not offered", "this release has no graphs")


def changed(change):
    """A sharder whose answer is changed."""
    return lambda self, *args, **how: change(SHARD(self, *args, **how))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: None, "shard answers None: it must be a list; does the method return what it makes?"),
        (
            lambda rows: rows[0],
            "shard answers one list of numbers: answer a list per rank, of all 2 ranks at once",
        ),
        (lambda rows: rows[:1], "shard answers for 1 of 2 ranks: answer for all of them at once, in order"),
        (numpy.array, "shard answers a numpy.ndarray: it must be a list, .tolist() makes it one"),
        (
            lambda rows: [list(numpy.array(own)) for own in rows],
            "shard answers a numpy.int64 (1001) in [0][0]: it must be an int, .tolist() makes it one",
        ),
        (
            lambda rows: (own for own in rows),
            "shard answers a generator: it must be a list, list(...) makes it one",
        ),
        (
            lambda rows: [map(int, own) for own in rows],
            "shard answers a map in [0]: it must be a list, list(...) makes it one",
        ),
        (lambda rows: [[*own[:-1], 1.5] for own in rows], "shard answers a float (1.5) in [0][7]: it must be an int"),
        (
            lambda rows: [[value or None for value in own] for own in rows],
            "shard answers None in [0][5]: it must be an int, in padding too, see padding_value in the contract",
        ),
    ],
)
def test_rows_of_a_wrong_type_are_named_with_what_makes_them_right(change, sentence):
    assert told("layout", shard=changed(change)) == sentence


def test_a_tensor_is_named_and_how_to_make_lists_of_it():
    torch = pytest.importorskip("torch")
    text = told("layout", shard=changed(torch.tensor))
    assert text == "shard answers a torch.Tensor: it must be a list, .tolist() makes it one"


def token(value):
    return value - 1001 if value else 0


@pytest.mark.parametrize(
    ("change", "given", "sentence"),
    [
        (
            lambda rows: rows[::-1],
            "[1003, 1004, 1011, ",
            "the ranks are swapped, rank 0 holds the tokens of rank 1: answer in the order of the ranks",
        ),
        (
            lambda rows: [rows[0]] * 2,
            "[1001, 1002, 1009, ",
            "every rank answers alike: tell the engine which rank it is before each of them is asked",
        ),
        (
            lambda rows: [list(range(len(own))) for own in rows],
            "[0, 1, 2, ",
            "these are row numbers that start again on each rank: hand back the values of `payload` that stand there",
        ),
        (
            lambda rows: [[token(value) % 8 for value in own] for own in rows],
            "[0, 1, 0, 1, ",
            "these are positions that start again in each request: hand back the values of `payload` that stand there",
        ),
        (
            lambda rows: [[token(value) for value in own] for own in rows],
            "[0, 1, 8, 9, ",
            "these are numbers of tokens: hand back the values of `payload` that stand there",
        ),
        (
            lambda rows: [[1001 + token(value) % 8 for value in own] for own in rows],
            "[1001, 1002, 1001, 1002, ",
            "the first request stands in the rows of every request: numbers inside a request are local, add the tokens "
            "of the requests before it",
        ),
        (
            lambda rows: [[2 * value for value in own] for own in rows],
            "[2002, ",
            "2002 is no token of the payload: hand back the values of `payload` that stand there",
        ),
    ],
)
def test_rows_that_no_engine_gives_by_itself_are_recognised(change, given, sentence):
    text = told("layout", shard=changed(change))
    assert text.startswith(f"of payload 1001 to 1016 on 2 ranks shard gives [{given}")
    assert text.endswith(f"]]: {sentence}")


def test_padding_that_is_not_declared_is_recognised():
    text = told("layout", shard=changed(lambda rows: [[value or -1 for value in own] for own in rows]))
    assert text.startswith("of payload 1001 to 1009 on 2 ranks shard gives [[1001, 1002, 1003, 1008, 1009, -1, -1")
    assert text.endswith(
        "]]: -1 is no token of the payload: if it is padding, declare Contract(padding_value=-1), it is 0"
    )


def test_padding_that_is_taken_off_is_recognised():
    text = told("captured-rows", shard=changed(lambda rows: [[value for value in own if value] for own in rows]))
    assert text == "shard gives 8 and 8 rows where captured_rows is 16: hand them back with all of their padding"


def test_rows_and_segments_in_another_order_of_blocks_are_recognised():
    late_first = changed(lambda rows: [own[len(own) // 2 :] + own[: len(own) // 2] for own in rows])
    assert told("keys", shard=late_first) == (
        "shard gives the late block first and kv_segments the early one, or the other way round: both must list "
        "the same rows in the same order"
    )


def test_positions_that_are_made_up_are_recognised():
    made_up = lambda self, *args, **how: [list(range(len(own))) for own in POSITIONS(self, *args, **how)]  # noqa: E731
    assert told("positions", shard_positions=made_up) == (
        "shard_positions gives row numbers that start again on each rank: let it move what it is handed"
    )


def test_an_argument_that_is_changed_is_named():
    def shard(self, batch, payload, **how):
        rows = SHARD(self, batch, payload, **how)
        payload.append(0)
        return rows

    assert told("layout", shard=shard) == "shard changes the payload that it is handed: let it work on a copy"


def test_a_method_that_cannot_be_called_as_it_is_asked_is_shown_how():
    def shard(self, batch, payload, cp_size):
        return []

    assert told("layout", shard=shard) == (
        "shard is called as shard(batch, payload, *, cp_size, strategy), the adapter's does not fit that: got an "
        "unexpected keyword argument 'strategy': take the arguments that the contract names"
    )


def test_a_gather_without_captured_rows_has_to_say_so():
    def gather(self, batch, rows, *, cp_size, strategy):
        return Toy.gather(self, batch, rows, cp_size=cp_size, strategy=strategy)

    assert told("captured-rows", gather=gather) == (
        "gather is called as gather(batch, rows, *, cp_size, strategy, captured_rows), the adapter's does not fit "
        "that: got an unexpected keyword argument 'captured_rows': let it take it, or say so in "
        "unavailable['captured-rows']"
    )
    said = broken(gather=gather, unavailable={"captured-rows": "nothing is captured"})
    assert {entry.state for entry in smoke(said)} == {"ok", "not offered"}


def test_an_exception_in_the_adapters_own_lines_is_its_own():
    def shard(self, *args, **options):
        raise KeyError("tokens")

    text = told("layout", shard=shard)
    assert text.startswith("shard raised KeyError: 'tokens' (test_smoke.py:")
    assert text.endswith("): mend this line of the adapter, only what is raised under roots is an answer")


def test_an_exception_from_a_file_that_is_neither_is_put_down_to_roots():
    text = told("layout", shard=lambda self, *args, **how: json.loads("{"))
    assert text.startswith("shard raised JSONDecodeError: Expecting property name")
    assert text.endswith("json/decoder.py is the engine's, name it or its folder in roots; else mend the adapter")


def test_an_engine_that_raises_on_the_simplest_batch_points_at_what_it_was_given():
    def shard(self, *args, **options):
        raise KeyError("tokens")

    text = told("layout", shard=shard, roots=(__file__,))
    assert text.startswith("shard: the engine raised KeyError: 'tokens' (test_smoke.py:")
    assert text.endswith("): look at what the adapter hands to it")


def test_what_is_asked_with_rows_waits_for_the_rows():
    found = line(broken(shard=changed(lambda rows: None)), "gather")
    assert (found.state, found.text) == ("not offered", "it is asked with what shard gives: that comes first")


class Answering:
    def __init__(self, answer):
        self.answer = answer

    def step(self, _):
        return self.answer


@pytest.mark.parametrize(
    ("what", "members", "sentence"),
    [
        (
            "gate",
            {"is_cp_active": lambda self, *a, **o: 1},
            "is_cp_active answers an int (1): it must be True or False",
        ),
        (
            "keys",
            {"kv_segments": lambda self, *a, **o: [[4, 8], [4, 8]]},
            "kv_segments answers an int (4) in [0][0]: it must be a tuple",
        ),
        (
            "keys",
            {"kv_segments": lambda self, *a, **o: [[(1, 2, 3)], []]},
            "kv_segments answers (1, 2, 3) in [0][0]: it must have 2 entries",
        ),
        (
            "capacity",
            {"required_local_tokens": lambda self, *a, **o: "8"},
            "required_local_tokens answers a str ('8'): it must be an int",
        ),
        (
            "capacity",
            {"required_local_tokens": lambda self, *a, **o: [8, 8]},
            "required_local_tokens answers a list ([8, 8]): it must be an int, for one rank or one batch at a time",
        ),
        (
            "selection",
            {"select_replay_bucket": lambda self, **o: [8]},
            "select_replay_bucket answers a list ([8]): it must be an int, for one rank or one batch at a time",
        ),
        (
            "replay",
            {"contract": Contract(graph_strategies=())},
            "graph_strategies in the contract is empty: name what start captures graphs for",
        ),
        ("replay", {"start": lambda self, server: 3}, "start(...) answers 3, which has no captured"),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([True, True])},
            "start_delayers(...).step answers a bool (True) in [0]: it must be a cpbcg_ref.answers.Verdict",
        ),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([])},
            "start_delayers(...).step answers for 0 of 2 ranks: answer for all of them at once, in order",
        ),
        (
            "attempts",
            {"start_attempts": lambda self: Answering(None)},
            "start_attempts().step answers None: it must be an int; does the method return what it makes?",
        ),
        (
            "negotiation",
            {"start_delayers": lambda self, config: Answering([Raised("KeyError", "'usage'", "delayer.py:9")] * 2)},
            "start_delayers(...).step: the engine raised KeyError: 'usage' (delayer.py:9): look at what the adapter "
            "hands to it",
        ),
        ("votes", {"votes": lambda self, m, w: [1, 0]}, "votes answers an int (1) in [0]: it must be True or False"),
    ],
)
def test_other_answers_of_a_wrong_type_are_named(what, members, sentence):
    assert told(what, **members) == sentence


def test_an_adapter_that_would_end_the_process_is_broken():
    def exits(self, *args, **how):
        raise SystemExit(0)

    assert told("gate", is_cp_active=exits).startswith("is_cp_active raised SystemExit: 0 (test_smoke.py:")


@pytest.mark.parametrize(
    "share",
    [
        lambda tokens: [tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :]],
        lambda tokens: [tokens, []],
        lambda tokens: [tokens[:-1][::2], tokens[1::2]],
    ],
    ids=["no zigzag", "one rank has all", "a token is lost"],
)
def test_a_wrong_engine_is_left_to_check(share):
    wrong = broken(
        contract=Contract(cp_sizes=(2,)),
        shard=lambda self, batch, payload, **how: share(self.owners(batch.lengths, 1, "zigzag") and payload),
        unavailable=dict.fromkeys(("captured-rows", "replay"), "not here"),
    )
    assert line(wrong, "layout") == ("ok", "layout", "")


@pytest.mark.parametrize(
    "declared",
    [
        {"cp_sizes": (1,)},
        {"cp_sizes": (3, 5)},
        {"divides": 2},
        {"divides": 1, "min_length": 7},
        {"max_requests": 1},
        {"strategies": ("interleave", "zigzag")},
    ],
)
def test_a_right_engine_is_ok_whatever_it_is_asked_for(declared):
    assert [line for line in smoke(broken(contract=Contract(**declared))) if line.state == "broken"] == []


RELEASES = [("sglang", "0.5.16"), ("sglang", "0.5.17"), ("sglang", "0.5.23"), ("megatron-core", "0.16.1")]
RELEASES += [("transformer-engine", "2.20.2"), ("verl", "0.7.0"), ("verl", "0.9.1")]


@pytest.mark.parametrize(("name", "version"), RELEASES)
def test_no_adapter_of_a_release_is_called_broken(release, name, version):
    assert [line for line in smoke(release(version, name)) if line.state == "broken"] == []


@pytest.mark.parametrize("target", ["torch", "torch:per-document"])
def test_no_adapter_of_torch_is_called_broken(target):
    pytest.importorskip("torch")
    assert [line for line in smoke(resolve(target)) if line.state == "broken"] == []
