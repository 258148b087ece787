"""The search for a difference, on toys that decide one thing differently, asked in this process."""

import math
import re
import time
from dataclasses import dataclass

import pytest
import toys_diff as toys

from cpbcg_ref.asking import CaptureFailed
from cpbcg_ref.cases import (
    BadLayoutCase,
    Batch,
    DelayerConfig,
    LastPassCase,
    LayoutCase,
    PassesCase,
    RankReport,
    SelectCase,
    SelectPairCase,
)
from cpbcg_ref.checking.functions import FUNCTIONS
from cpbcg_ref.checking.pairs import Search, halves
from cpbcg_ref.checking.sides import ASKS, NoAnswer, describe
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.engines.contract import Contract


@dataclass
class Here:
    """Both engines in this process; the cases that they were asked are kept."""

    engines: tuple
    asked: list

    def ask(self, case, *, within_s):
        self.asked.append(case)
        return tuple(self.answer(engine, case) for engine in self.engines)

    def answer(self, engine, case):
        try:
            return ASKS[type(case)](engine, case)
        except CaptureFailed as problem:
            return problem.raised
        except Exception as problem:
            raise NoAnswer(f"{type(problem).__name__} in {engine.name}") from problem


def compared(left, right, *ids, **how):
    """{id: how it compares}, and the pair that was asked."""
    pair = Here((left, right), [])
    described = tuple(describe(engine, engine.name) for engine in pair.engines)
    families = dict.fromkeys(FUNCTIONS[name].family for name in ids)
    found = {}
    for family in families:
        search = Search(pair=pair, engines=described, family=family, **({"profile": "dev"} | how))
        found |= {one.function: one for one in search.compare([i for i in ids if FUNCTIONS[i].family == family])}
    return found, pair


def only(left, right, name, **how):
    return compared(left, right, name, **how)[0][name]


SMALLEST_SELECT = SelectCase(
    num_tokens=1, required_local_tokens=1, capture_num_tokens=(2,), bucket_local_tokens=((2, 1),)
)


@pytest.mark.parametrize(
    ("name", "other", "case", "places"),
    [
        (
            "layout.is_cp_active",
            toys.ShyGate,
            LayoutCase(cp_size=2, batch=Batch(lengths=(4,), prefixes=(0,))),
            (("rank 0", "True", "False"), ("rank 1", "True", "False")),
        ),
        (
            "select.select_replay_bucket",
            toys.StrictlyBelowTwice,
            SMALLEST_SELECT,
            (("answer", "2", "-"), ("asked again", "2", "-")),
        ),
        (
            "select-pair.select_replay_bucket",
            toys.StrictlyBelowTwice,
            SMALLEST_SELECT,
            (("answer", "2", "-"), ("asked again", "2", "-")),
        ),
        (
            "bad-layout.shard",
            toys.OtherKind,
            BadLayoutCase(cp_size=2, lengths=(-1,)),
            (("every rank", "ValueError", "IndexError"),),
        ),
    ],
)
def test_the_smallest_case_on_which_two_toys_differ_is_found(name, other, case, places):
    found = only(toys.Right(), other(), name)
    assert found.outcome == "different"
    assert found.difference.python == as_python(case)
    assert found.difference.places == places
    assert found.difference.smallest


def test_a_function_that_is_alike_is_told_so_beside_one_that_differs():
    found, _ = compared(toys.Right(), toys.ShyGate(), "layout.is_cp_active", "layout.shard")
    assert [one.outcome for one in found.values()] == ["different", "same"]
    assert found["layout.shard"].examples == 45


def test_asked_alone_a_function_has_the_same_smallest_case_after_as_many_examples():
    names = [name for name in FUNCTIONS if name.startswith("layout.")]
    among, alone = (compared(toys.Right(), toys.ShyGate(), *ids)[0] for ids in (names, ["layout.is_cp_active"]))
    one, other = (found["layout.is_cp_active"] for found in (among, alone))
    assert (one.examples, one.difference) == (other.examples, other.difference)


def test_an_engine_does_not_differ_from_itself():
    names = [name for name in FUNCTIONS if name.startswith(("layout.", "bad-layout.", "select"))]
    found, _ = compared(toys.Right(), toys.Renamed(), *names)
    assert {one.outcome for one in found.values()} == {"same"}
    assert all(sum(one.witnesses.values()) for one in found.values())
    assert not any(one.unmet for one in found.values())


def test_another_message_at_another_line_is_no_difference():
    assert only(toys.Right(), toys.OtherWords(), "bad-layout.shard").outcome == "same"


def test_clocks_of_their_own_differ_only_where_clocks_are_on_both_sides_of_the_limit():
    found, _ = compared(toys.Clocks(), toys.OwnClocks(), "passes.verdict", "skewed-passes.verdict")
    assert found["passes.verdict"].outcome == "same"
    difference = found["skewed-passes.verdict"].difference
    assert difference.violates == ((), ("delay.agree",))
    ((place, left, right),) = difference.places
    assert (place.partition(", ")[0], {left, right}) == ("pass 3", {"allow", "delay"})


def test_the_invariants_of_an_engine_are_judged_by_its_own_answers():
    difference = only(toys.StrictlyBelowTwice(), toys.Right(), "select.select_replay_bucket").difference
    assert difference.violates == (("select.complete",), ())


def test_what_one_engine_lacks_is_skipped_with_its_reason():
    first, second = toys.Right(), toys.Renamed()
    second.unavailable = {"capacity": "it pads nothing"}
    found, pair = compared(first, second, "layout.required_local_tokens", "replay.captured", "layout.shard")
    assert found["layout.required_local_tokens"].message == "toy 2: it pads nothing"
    assert found["replay.captured"].message == "toy 1: it starts no server"
    assert found["layout.shard"].outcome == "same"
    assert {type(case) for case in pair.asked} == {LayoutCase}


def test_only_cases_that_both_contracts_allow_are_asked():
    first, second = toys.Right(), toys.Renamed()
    first.contract = Contract(cp_sizes=(2, 4, 8), strategies=("zigzag", "interleave"), min_length=1)
    second.contract = Contract(cp_sizes=(4, 8, 16), divides=2)
    _, pair = compared(first, second, "layout.shard")
    assert {(case.cp_size, case.strategy) for case in pair.asked} == {(4, "zigzag"), (8, "zigzag")}
    lengths = {length for case in pair.asked for length in (min(case.batch.lengths) / case.cp_size,)}
    assert min(lengths) == 2
    assert all(length % (2 * case.cp_size) == 0 for case in pair.asked for length in case.batch.lengths)


def test_engines_that_support_no_group_in_common_are_not_asked():
    first, second = toys.Right(), toys.Renamed()
    first.contract, second.contract = Contract(cp_sizes=(2,)), Contract(cp_sizes=(4,))
    found, pair = compared(first, second, "layout.shard", "select.select_replay_bucket")
    assert found["layout.shard"].message == "the two engines have no cp_sizes in common"
    assert (found["layout.shard"].outcome, found["select.select_replay_bucket"].outcome) == ("skip", "same")
    assert not any(isinstance(case, LayoutCase) for case in pair.asked)


def test_a_server_that_only_one_engine_can_start_is_a_difference_of_its_own():
    found, _ = compared(toys.Servers(), toys.NeverStarts(), "replay.start", "replay.can_run_graph")
    difference = found["replay.start"].difference
    assert difference.places == (("start", "started", "MemoryError"),)
    assert re.fullmatch(r"2: MemoryError: an odd bucket \(toys_diff.py:\d+\)", difference.picture)
    assert found["replay.can_run_graph"].outcome == "same"


def test_cases_of_which_neither_engine_can_start_the_server_are_none():
    found = only(toys.NoServer(), toys.NoServer(), "replay.can_run_graph")
    assert (found.outcome, found.examples) == ("skip", 0)
    assert found.message == "no case was asked: every case was refused by both engines"


def test_an_engine_that_answers_differently_when_asked_again_is_an_error():
    found = only(toys.Right(), toys.Moody(), "select.select_replay_bucket")
    assert found.outcome == "error"
    assert "differently when asked again" in found.message


def test_an_adapter_that_breaks_is_an_error_and_no_difference():
    found, _ = compared(toys.Right(), toys.BrokenAdapter(), "layout.shard", "select.select_replay_bucket")
    assert (found["layout.shard"].outcome, found["layout.shard"].message) == ("error", "AttributeError in toy")
    assert found["select.select_replay_bucket"].outcome == "same"


def test_when_the_time_is_up_what_was_found_is_told_unshrunk(monkeypatch):
    until, name = time.monotonic() + 100, "select.select_replay_bucket"
    whole = only(toys.Right(), toys.StrictlyBelowTwice(), name, until=until)
    assert whole.examples > 1
    clock = iter([*[0.0] * whole.examples, *[200 + until] * 10_000])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    found = only(toys.Right(), toys.StrictlyBelowTwice(), name, until=until)
    assert (found.outcome, found.difference.smallest) == ("different", False)
    assert len(found.difference.python) > len(whole.difference.python)


def test_without_time_nothing_was_asked_and_nothing_is_called_the_same():
    found = only(toys.Right(), toys.ShyGate(), "layout.is_cp_active", until=-math.inf)
    assert (found.outcome, found.message) == ("skip", "no case was asked: the time was up")


def test_a_pair_is_one_question_where_one_shows_the_difference():
    config, report = DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=8), RankReport(prefillable=True)
    case = LastPassCase(config=config, history=((report,),), last=(report,), other_last=())
    first, second = halves(case)
    assert first == PassesCase(config=config, passes=((report,), (report,)))
    assert second == PassesCase(config=config, passes=((report,), ()))
    assert halves(SelectPairCase(base=SMALLEST_SELECT, more=SMALLEST_SELECT)) == (SMALLEST_SELECT, SMALLEST_SELECT)
    assert halves(first) == ()
