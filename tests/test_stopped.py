"""When a search ends and what it says about that; what its seconds are."""

from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from cpbcg_ref.cases import VotesCase
from cpbcg_ref.checking import family
from cpbcg_ref.checking.family import FamilyRun, PartRun
from cpbcg_ref.checking.run import Checker, why_stopped
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.invariants.model import Part, not_excluded
from cpbcg_ref.strategies import cases_for

MOST = 20  # examples of the family "votes" in the profile "dev"
VOTES = cases_for("votes", Contract())


def part(*, wrong=lambda case: None, **witnesses):
    """A part asked with votes. wrong: the sentence about a case; a witness is told how many cases came before."""

    def met(witness):
        before = count()
        return lambda case, seen: witness(next(before))

    told = {name: met(witness) for name, witness in witnesses.items()}
    judge = {"check": lambda case, seen, contract: wrong(case), "witnesses": told}
    return PartRun(
        part=Part(family="votes", needs=(), excluded=not_excluded, **judge), demanded=tuple(told), known=True
    )


def search(*runs, strategy=VOTES, rounds=4):
    """Judges the runs; returns how many cases were made for them."""
    made = []
    told = {"family": "votes", "profile": "dev", "strategy": strategy.map(lambda case: made.append(case) or case)}
    of_family = FamilyRun(engine=Reference(), executed=set(), **told)
    of_family.judge(runs, first_seed=0, rounds=rounds)
    return len(made)


def nth(number):
    """Wrong in the nth case."""
    calls = count(1)
    return lambda case: "wrong" if next(calls) == number else None


def breaks(case):
    raise KeyError("votes")


@pytest.mark.parametrize(
    ("made", "examples", "stopped"),
    [
        ({}, MOST, "20 examples of the profile"),
        ({"wrong": nth(7)}, 7, "first failure at example 7"),
        ({"wrong": breaks}, 1, "error at example 1"),
        ({"rare": lambda before: before == MOST + 4}, MOST + 5, "witnesses met in round 2 of at most 4"),
        ({"rare": lambda before: before == 3 * MOST}, 3 * MOST + 1, "witnesses met in round 4 of at most 4"),
        ({"never": lambda before: False, "often": lambda before: True}, 4 * MOST, "cap of 4 rounds: never met never"),
        ({"wrong": nth(25), "never": lambda before: False}, 25, "first failure at example 25"),
    ],
)
def test_a_search_says_why_it_ended(made, examples, stopped):
    run = part(**made)
    search(run)
    assert (run.examples, run.stopped) == (examples, stopped)


def test_a_search_that_runs_out_of_new_cases_says_so():
    run, few = part(), st.sampled_from([VotesCase(mid_chunk=(True,), waiting=(n,)) for n in range(3)])
    search(run, strategy=few)
    assert (run.examples, run.stopped) == (3, "no new case after 3 of 20 examples of the profile")


@pytest.mark.parametrize("others", [[], [{"wrong": nth(2)}]])
def test_no_case_is_made_once_no_part_wants_another(others):
    runs = [part(wrong=nth(5)), *(part(**other) for other in others)]
    assert search(*runs) <= 6  # the one that ended it is made twice
    assert runs[0].examples == 5


def test_what_others_want_shows_a_part_no_further_case():
    alone, beside = (part(rare=lambda before: before == MOST + 4) for _ in range(2))
    search(alone)
    search(beside, part(never=lambda before: False), part(wrong=nth(2)))
    assert beside.examples == alone.examples == MOST + 5


def test_seconds_are_an_equal_share_of_the_searches_and_the_rate_is_not_multiplied_by_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(family, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow(case):
        now[0] += 1.0

    runs = [part(wrong=slow), part(), part(wrong=nth(5))]
    search(*runs)
    assert [run.searched for run in runs] == [MOST, MOST, 5]
    assert [run.seconds for run in runs] == pytest.approx([5 / 3 + 15 / 2, 5 / 3 + 15 / 2, 5 / 3])


def test_a_result_tells_its_rate_its_shares_and_why_it_stopped():
    found = Checker(engine=Reference(), target="reference", profile="dev").check("select.complete")
    assert found.examples == 180  # of both of its parts
    assert found.stopped == "select: 120 examples of the profile; replay: 60 examples of the profile"
    assert found.examples_per_second == round(180 / found.searched, 1)
    fits, fits_a_batch = found.witnesses["a bucket fits"], found.witnesses["a bucket fits a batch"]
    assert found.shares == {"a bucket fits": round(fits / 120, 4), "a bucket fits a batch": round(fits_a_batch / 60, 4)}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([("a", "x")], "x"),
        ([("a", "x"), ("a", "x")], "x"),
        ([("a", "x"), ("b", "")], "x"),
        ([("a", "x"), ("a", "y")], "a: x; a: y"),
        ([("a", "x"), ("b", "y"), ("b", "y")], "a: x; b: y"),
        ([("a", "")], ""),
    ],
)
def test_parts_that_stopped_alike_say_so_once(parts, told):
    assert why_stopped(parts) == told


def test_a_known_failure_is_not_shrunk_and_any_other_is():
    class Wrong(Reference):
        def select_replay_bucket(self, *, num_tokens, **question):
            return 1 if num_tokens > 1000 else super().select_replay_bucket(num_tokens=num_tokens, **question)

    def tokens(**options):
        checker = Checker(engine=Wrong(), target="wrong", profile="dev", **options)
        return checker.check("select.fits-tokens").counterexample.case["num_tokens"]

    assert tokens(known=frozenset({"select.fits-tokens"})) > tokens() > 1000
