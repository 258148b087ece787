"""Every planted defect is caught by each check that it names; nothing is found without one."""

from dataclasses import replace

import pytest
import torch

from cpbcg_ref.invariants import REGISTRY
from gpu_conformance import checks
from gpu_conformance.arithmetic import EXACT, SMOOTH
from gpu_conformance.model import Model
from gpu_conformance.plants import PLANTS, Plant
from gpu_conformance.rank import Parts
from gpu_conformance.trials import EDGES, group, hunt, served
from gpu_conformance.work import Seen

ON_FOUR = ("token-only-selection", "stale-slots", "late-tokens", "padding-read", "rope-on-one-rank")
ALONE = {  # check -> a plant and an id by which nothing else reports it
    "rows_fit": ("token-only-selection", "capacity.no-overflow"),
    "rows_came_out": ("short-output", "data.replay-equals-eager"),
    "replay_equals_eager": ("another-kernel", "data.replay-equals-eager"),
    "right": ("rope-on-all-ranks", "data.replay-equals-eager"),
    "padding_inert": ("padding-read", "data.padding-inert"),
    "history_free": ("live-count-missing", "data.history-free"),
    "planned_slots_only": ("foreign-padding", "data.history-free"),
    "guards_intact": ("rows-vs-indptr", "data.in-bounds"),
}


@pytest.mark.parametrize(("name", "cp_size"), [*((name, 2) for name in PLANTS), *((name, 4) for name in ON_FOUR)])
def test_a_planted_defect_is_caught_by_each_check_that_it_names(name, cp_size):
    hunted = hunt(name, cp_size, cp_size=cp_size)
    assert not hunted.error
    assert set(PLANTS[name].caught_by) <= set(hunted.found)


@pytest.mark.parametrize(("cp_size", "seed"), [(2, 0), (2, 1), (2, 2), (2, 3), (4, 0), (4, 1), (8, 0), (8, 1)])
def test_nothing_is_found_without_a_defect(cp_size, seed):
    hunted = hunt("", seed, cp_size=cp_size)
    assert (hunted.found, hunted.error) == ({}, "")
    assert hunted.batches > EDGES


@pytest.mark.parametrize("arithmetic", [SMOOTH, EXACT], ids=lambda one: one.name)
def test_nothing_is_found_in_single_precision(arithmetic):
    made = group("", 4, cp_size=2)
    made = replace(made, model=Model(shape=made.model.shape, arithmetic=arithmetic, dtype=torch.float32))
    seen = [Seen(cp_rank=rank) for rank in range(2)]
    assert served(made, seen) == ""
    assert [finding.sentence for rank in seen for finding in rank.findings] == []


@pytest.mark.parametrize("check", ALONE)
def test_a_check_sees_what_no_other_does(check, monkeypatch):
    name, invariant = ALONE[check]
    assert invariant in hunt(name, 0).found
    monkeypatch.setattr(checks, check, lambda *given, **named: iter(()))
    assert invariant not in hunt(name, 0).found


def test_a_defect_in_one_place_is_not_blamed_on_another():
    """What differs with the padding does not depend on earlier batches, and the other way round."""
    assert set(hunt("padding-read", 0).found) == {"data.replay-equals-eager", "data.padding-inert"}
    assert set(hunt("stale-requests", 0).found) == {"data.replay-equals-eager", "data.history-free"}
    assert set(hunt("unmasked-padding", 0).found) == {"data.in-bounds"}


def test_a_trial_ends_with_the_batch_that_shows_the_defect():
    hunted = hunt("mask", 0)
    (finding, seconds) = hunted.found["data.replay-equals-eager"]
    assert finding.batch + 1 <= hunted.batches <= finding.batch + 2
    assert 0 < seconds <= hunted.seconds


def test_what_capturing_overwrites_is_not_blamed_on_a_batch():
    (finding, _) = hunt("long-padding", 0).found["data.in-bounds"]
    assert (finding.batch, finding.sentence[-15:]) == (-1, "in the captures")


def test_the_same_seed_gives_the_same_trial():
    first, second = (hunt("stale-slots", 3).found["data.history-free"][0] for _ in range(2))
    assert first == second


def test_a_rank_that_raises_is_told_and_does_not_end_the_trials(monkeypatch):
    broken = Plant(what="raises", caught_by=("data.in-bounds",), parts=lambda cp_rank: Parts(graph=None))
    monkeypatch.setitem(PLANTS, "raises", broken)
    assert "rank 0 raised" in hunt("raises", 0).error


def test_every_plant_says_what_is_wrong_and_names_known_ids():
    for plant in PLANTS.values():
        assert plant.what
        assert plant.caught_by
        assert set(plant.caught_by) <= set(REGISTRY)


def test_every_id_of_replayed_data_has_a_plant():
    named = {invariant for plant in PLANTS.values() for invariant in plant.caught_by}
    assert {name for name in REGISTRY if name.startswith("data.")} <= named
