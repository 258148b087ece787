"""Defects in replayed data among the seeded faults: told like them, run only where they can be."""

import json
from importlib import resources

import jsonschema
import pytest

from cpbcg_ref.checking import planted, trials
from cpbcg_ref.faults import FAULTS, VARIANTS

torch = pytest.importorskip("torch", reason="defects in replayed data need torch")
SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("faults.schema.json").read_text())


@pytest.fixture
def run(trials_of):
    """run("--select", "mask") -> (exit code, the JSON, stdout, stderr)."""
    return trials_of


@pytest.fixture
def nothing_can_be_planted(monkeypatch):
    planted.catalogue.cache_clear()
    monkeypatch.setattr(planted, "find_spec", lambda name: None if name == "torch" else name)
    yield
    planted.catalogue.cache_clear()


@pytest.fixture
def found_with_nothing_planted(monkeypatch):
    """A check that is wrong: it complains of every batch."""
    checks = planted.layer("checks")
    finding = checks.Finding(invariant="data.in-bounds", sentence="all is wrong")
    monkeypatch.setattr(checks, "guards_intact", lambda *given: [finding])


def test_a_plant_is_told_like_a_fault(run):
    code, told, out, _ = run("--select", "mask")
    jsonschema.validate(told, SCHEMA)
    (fault,) = told["faults"]
    assert (code, fault["caught"], fault["by"]) == (0, True, ["data.replay-equals-eager"])
    assert (fault["shrunk"], fault["smallest"]) == (None, None)
    first = [trial["ids"]["data.replay-equals-eager"]["examples"] for trial in told["trials"]["mask"]]
    assert fault["examples"] == sum(first) / 2 >= 1
    (control,) = told["control"]
    assert (control["engine"], control["alarms"]) == ("ranks in step", [])
    assert control["examples"] > fault["examples"] * 2
    assert "1 of 1 faults caught in every trial" in out


def test_a_plant_that_does_no_harm_is_not_caught(monkeypatch):
    plants = planted.layer("plants")
    harmless = plants.Plant(what="nothing", caught_by=("data.in-bounds",))
    monkeypatch.setitem(plants.PLANTS, "harmless", harmless)
    monkeypatch.setattr(
        planted,
        "catalogue",
        lambda: {"harmless": planted.Planted(key="harmless", wrong="nothing", source="", expected=("data.in-bounds",))},
    )
    trial = planted.hunt("harmless", 0)
    assert trial.soonest is None
    assert trial.hunts[0].examples == trial.asked > 20


@pytest.mark.usefixtures("found_with_nothing_planted")
def test_a_check_that_complains_of_right_ranks_makes_the_trials_worthless(run):
    """Workers are forked: they find the wrong check too."""
    trial = planted.control(0)
    assert [(hunt.id, hunt.found) for hunt in trial.hunts] == [("data.in-bounds", "all is wrong")]
    code, told, out, _ = run("--select", "mask")
    assert (code, len(told["control"][0]["alarms"])) == (2, 1)
    assert "THE RIGHT ENGINE ranks in step FAILS, so nothing is proved: data.in-bounds, seed 0: all is wrong" in out


@pytest.mark.usefixtures("nothing_can_be_planted")
def test_without_torch_nothing_is_planted_and_it_says_so(run, monkeypatch):
    asked = []
    monkeypatch.setattr(trials, "run", lambda *keys, **how: asked.append(keys) or trials.Outcome(seed=0))
    code, told, out, _ = run()
    jsonschema.validate(told, SCHEMA)
    assert (code, told["skipped"], asked[0][2]) == (0, "torch cannot be imported: pip install 'cpbcg[torch]'", [])
    assert "no defects were planted in replayed data: torch cannot be imported: pip install 'cpbcg[torch]'" in out


@pytest.mark.usefixtures("nothing_can_be_planted")
def test_a_plant_that_is_asked_for_without_torch_is_told_what_to_install(run):
    code, _, _, err = run("--select", "stale-slots")
    assert code == 2
    assert "; planted defects are missing here: torch cannot be imported: pip install 'cpbcg[torch]'" in err


def test_what_is_named_without_plants_does_not_look_for_them(run, monkeypatch):
    monkeypatch.setattr(planted, "catalogue", None)
    code, told, _, _ = run("--list", "--select", "overflow,timer-ignored")
    assert (code, len(told["faults"])) == (0, 2)


def test_the_list_has_the_plants_and_the_command_for_one(run):
    code, told, out, _ = run("--list", "--select", "stale-slots")
    assert (code, [one["key"] for one in told["faults"]]) == (0, ["stale-slots"])
    assert "stale-slots (sglang#24743 sglang#32477)" in out
    assert "`python -m gpu_conformance --plant KEY`" in out


def test_no_plant_has_the_key_of_a_fault_or_variant():
    assert not set(planted.catalogue()) & {*FAULTS, *VARIANTS}
    assert len(planted.catalogue()) >= 20
