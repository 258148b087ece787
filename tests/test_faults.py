"""The seeded faults: the catalogue, the trials and what they would not let through, edited cores, sizes."""

import json
import os
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

import cpbcg_ref
from cpbcg_ref import cases
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import generators, hunting, trials
from cpbcg_ref.checking.size import SIZES, size
from cpbcg_ref.engines.reference import Hardened, Reference, ReferenceServer
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import TargetError
from cpbcg_ref.faults import FAULTS, VARIANTS, Fault, Variant, public
from cpbcg_ref.faults.edited import edited
from cpbcg_ref.report import faulttable

SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("faults.schema.json").read_text())


class Right(Reference):
    """Nothing is wrong with it."""


class NeverReplays(Reference):
    """Refuses every batch."""

    def select_replay_bucket(self, **question):
        return None


class StillRefuses(NeverReplays):
    """Made from an engine that is wrong itself."""


class Broken(Reference):
    """Its adapter raises."""

    def select_replay_bucket(self, **question):
        raise ValueError("no such device")


class NothingFits(ReferenceServer):
    def can_run_graph(self, batch, cp_rank):
        return False

    def select(self, batch, cp_rank):
        return None


class RefusesBatches(Reference):
    """Has a right selector and never asks it."""

    server = NothingFits


class ShortRequests(Reference):
    """Declares that it shards any request, and does not."""

    contract = replace(Reference.contract, min_length=0)


class Dies(Reference):
    """Ends its process."""

    def select_replay_bucket(self, **question):
        os._exit(3)


@pytest.fixture
def fake(monkeypatch):
    """fake(engine_type, ids): one more fault, called fake."""

    def register(engine_type, expected):
        told = {"wrong": "see the test", "source": "", "expected": tuple(expected.split()), "smallest": 100}
        monkeypatch.setitem(FAULTS, "fake", Fault(key="fake", engine_type=engine_type, **told))

    return register


@pytest.fixture
def run(trials_of, monkeypatch):
    """run("--select", "fake") -> (exit code, the JSON, stdout, stderr)."""
    monkeypatch.setattr(hunting, "ROUNDS", 1)
    monkeypatch.setattr(trials, "VARIANT_PROFILE", "dev")
    return trials_of


def test_the_catalogue_has_eighty_faults_and_forty_of_public_bugs():
    assert len(FAULTS) >= 80
    assert sum(public(fault.source) for fault in FAULTS.values()) >= 40
    assert len(VARIANTS) >= 5


def test_every_miniature_can_be_made_and_is_called_by_its_key():
    made = {key: one.engine.name for key, one in (FAULTS | VARIANTS).items()}
    assert made == {key: key for key in FAULTS | VARIANTS}


def test_no_miniature_was_made_from_a_wrong_engine():
    wrong = {fault.engine_type for fault in FAULTS.values() if not fault.edits}
    assert not wrong & {fault.base for fault in FAULTS.values()}


@pytest.mark.parametrize(
    ("fault", "base"),
    [
        ({"engine_type": Right}, Reference),
        ({"engine_type": StillRefuses}, NeverReplays),
        ({"engine_type": Hardened, "edits": (("replay", "a", "b"),)}, Hardened),
        ({"engine_type": lambda: Reference()}, Reference),
    ],
)
def test_a_fault_knows_the_right_engine_that_it_was_made_from(fault, base):
    assert Fault(key="fake", wrong="x", source="", expected=("select.pure",), smallest=1, **fault).base is base


def test_a_miniature_is_made_afresh_each_time():
    assert FAULTS["overflow"].engine is not FAULTS["overflow"].engine


@pytest.mark.parametrize("times", [1, 2])
def test_a_caught_fault_is_told_with_its_numbers(run, times):
    code, told, out, err = run("--select", "argument-mutated", "--trials", str(times))
    jsonschema.validate(told, SCHEMA)
    (fault,) = told["faults"]
    assert (code, fault["caught"], fault["by"], err) == (0, True, ["select.pure"], "")
    assert [trial["seed"] for trial in told["trials"]["argument-mutated"]] == list(range(times))
    examples = [trial["ids"]["select.pure"]["examples"] for trial in told["trials"]["argument-mutated"]]
    assert fault["examples"] == sum(examples) / times
    assert fault["shrunk"] >= fault["smallest"]
    assert f"{times}/{times}" in out
    assert "1 of 1 faults caught in every trial" in out


def test_a_finding_of_another_part_of_the_invariant_than_the_first_is_shrunk(run):
    (fault,) = run("--select", "cumulative-lengths-sliced", "--trials", "1")[1]["faults"]
    assert fault["shrunk"] == fault["smallest"]


def test_a_fault_that_is_none_is_not_caught(run, fake):
    fake(Right, "select.pure")
    code, told, out, _ = run("--select", "fake")
    jsonschema.validate(told, SCHEMA)
    (fault,) = told["faults"]
    assert (code, fault["caught"], fault["by"], fault["examples"], fault["shrunk"]) == (1, False, [], None, None)
    assert "NOT CAUGHT fake: not in every trial by select.pure" in out
    assert "0 of 1 faults caught" in out


def test_an_id_that_does_not_catch_its_fault_is_told_although_another_does(run, fake):
    fake(NeverReplays, "select.pure select.complete")
    code, told, out, _ = run("--select", "fake")
    (fault,) = told["faults"]
    assert (code, fault["caught"], fault["by"]) == (1, True, ["select.complete"])
    assert "TOO MUCH CLAIMED fake: not in every trial by select.pure" in out


def test_a_miniature_whose_adapter_raises_is_not_caught_and_says_why(run, fake):
    fake(Broken, "select.pure")
    code, told, out, _ = run("--select", "fake")
    assert (code, told["trials"]["fake"][0]["error"]) == (1, "ValueError: no such device")
    assert "ValueError: no such device" in out


def test_a_miniature_that_ends_its_process_is_one_sentence(run, fake):
    fake(Dies, "select.pure")
    code, told, _, err = run("--select", "fake")
    assert (code, told) == (2, None)
    assert err == "error: a worker process died while it ran a miniature: run with --select to find which\n"


def test_an_engine_that_counts_as_right_and_is_not_makes_the_trials_worthless(run, fake):
    fake(StillRefuses, "select.complete")
    code, told, out, _ = run("--select", "fake")
    jsonschema.validate(told, SCHEMA)
    assert (code, told["faults"][0]["caught"]) == (2, True)
    assert len(told["control"][0]["alarms"]) == 1
    assert "THE RIGHT ENGINE reference FAILS, so nothing is proved: select.complete, seed 0: eager for" in out


def test_a_right_engine_that_cannot_be_asked_makes_the_trials_worthless(run, fake):
    fake(type("OverBroken", (Broken,), {"select_replay_bucket": Reference.select_replay_bucket}), "select.complete")
    assert run("--select", "fake")[0] == 2


def test_a_right_engine_is_asked_only_what_its_own_contract_allows(run, fake):
    fake(ShortRequests, "layout.bijection")
    code, told, _, _ = run("--select", "fake")
    (control,), searches = told["control"], told["trials"]["fake"]
    assert (code, told["faults"][0]["caught"], control["alarms"]) == (0, True, [])
    assert control["examples"] == sum(trial["ids"]["layout.bijection"]["examples"] for trial in searches)


def test_an_id_is_counted_in_the_family_of_cases_that_showed_it(fake):
    """The selector alone is right: the family that is asked first shows nothing."""
    fake(RefusesBatches, "select.complete")
    ((trial,), control) = hunting.hunt(["fake"], 0)
    (one,) = trial.hunts
    assert (one.family, trial.asked) == ("replay", control.asked)
    assert 0 < one.examples < 100 < trial.asked - one.examples
    assert 0 < one.seconds < trial.seconds


def test_a_variant_that_is_wrong_is_flagged_with_the_reason(run, monkeypatch):
    monkeypatch.setitem(VARIANTS, "fake", Variant(key="fake", why="see the test", engine_type=NeverReplays))
    code, told, out, _ = run("--select", "fake")
    jsonschema.validate(told, SCHEMA)
    assert code == 1
    assert "select.complete" in told["variants"][0]["flagged"]
    assert "FLAGGED fake: select.complete fail: eager for" in out


def test_a_right_variant_is_not_flagged(run, monkeypatch):
    monkeypatch.setitem(VARIANTS, "fake", Variant(key="fake", why="see the test", engine_type=Right))
    code, told, out, _ = run("--select", "fake")
    assert (code, told["variants"]) == (0, [{"key": "fake", "flagged": []}])
    assert "0 of 1 different and right engines flagged" in out


def test_an_unknown_key_is_refused_with_the_nearest(run):
    code, told, _, err = run("--select", "overfow")
    assert (code, told) == (2, None)
    assert "no fault or variant is called 'overfow': did you mean overflow" in err


def test_the_list_shows_the_entries_and_runs_nothing(run, monkeypatch):
    monkeypatch.setattr("cpbcg_ref.checking.trials.run", None)
    code, told, out, _ = run("--list", "--select", "overflow")
    assert (code, [one["key"] for one in told["faults"]]) == (0, ["overflow"])
    assert "overflow (sglang#33906)" in out
    assert "the bucket is picked by the number of tokens alone; to be caught by capacity.no-overflow" in out


def test_a_fault_is_caught_if_every_trial_caught_it_and_is_counted_to_its_first_id(fake):
    fake(Right, "select.pure select.complete")
    unseen = (hunting.Hunt(id="select.pure"), hunting.Hunt(id="select.complete"))
    soon, later = (replace(unseen[1], examples=examples, found="x") for examples in (2, 4))
    both = hunting.Trial(key="fake", seed=0, hunts=(replace(unseen[0], examples=9, found="x"), soon))
    none, one = (hunting.Trial(key="fake", seed=1, hunts=hunts) for hunts in (unseen, (unseen[0], later)))
    assert (both.soonest, none.soonest) == (soon, None)
    for second, caught, by, examples in ((none, False, [], 2), (one, True, ["select.complete"], 3)):
        told = faulttable.of_fault("fake", [both, second], trials.Outcome(seed=0))
        assert (told["caught"], told["by"], told["examples"]) == (caught, by, examples)


def test_the_same_seed_gives_the_same_trial_and_the_right_engine_is_asked_the_same_cases():
    runs = [hunting.hunt(["overflow"], 3) for _ in range(2)]
    counted = [[(hunt.id, hunt.examples, hunt.found) for hunt in trial.hunts] for (trial,), _ in runs]
    assert counted[0] == counted[1]
    assert all(control.asked == trial.asked > 0 and not control.error for (trial,), control in runs)


def test_faults_that_are_hunted_together_fare_as_if_alone():
    together, _ = hunting.hunt(["tokens-ignored", "bucket-below"], 1)
    alone = [hunting.hunt([trial.key], 1)[0][0] for trial in together]
    assert [trial.hunts[0].examples for trial in together] == [trial.hunts[0].examples for trial in alone]
    assert [trial.asked for trial in together] == [trial.hunts[0].examples for trial in together]


def test_a_trial_ends_when_its_time_is_up(monkeypatch):
    monkeypatch.setattr(hunting, "TRIAL_SECONDS", 0.0)
    ((trial,), control) = hunting.hunt(["overflow"], 0)
    assert (trial.asked, control.asked, trial.soonest) == (0, 0, None)


def test_a_search_of_the_generators_counts_the_examples_up_to_the_first_find():
    seen = []
    assert generators.search(generators.plain(), lambda batch: seen.append(batch) or len(seen) >= 4, 0, 50) == 4
    assert generators.search(generators.plain(), lambda batch: False, 0, 50) == 50


def test_a_miniature_is_a_target():
    wrong = resolve("fault:overflow")
    assert wrong.name == "overflow"
    assert wrong.start(cases.Server(cp_size=2, capture_num_tokens=(15,), context_length=64)).select(
        cases.Batch(lengths=(5, 5, 5), prefixes=(0, 0, 0)), 0
    )


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("fault:overflw", "no fault is called 'overflw': did you mean overflow?"),
        ("fault:", "no fault is called '': `cpbcg faults --list` lists them"),
        ("variant:overflow", "no variant is called 'overflow'"),
    ],
)
def test_a_miniature_that_there_is_not_is_refused(target, text):
    with pytest.raises(TargetError) as refused:
        resolve(target)
    assert str(refused.value).startswith(text)


ALWAYS_ACTIVE = ("layout", "return min(lengths, default=0) >= 2 * n", "return True")


def test_an_edit_changes_the_copy_and_not_the_original():
    wrong = edited("cpbcg_test_edit", [ALWAYS_ACTIVE])
    assert wrong.is_cp_active([1], cp_size=4)
    assert not cpbcg_ref.is_cp_active([1], cp_size=4)
    assert wrong.CaptureTable.__module__ == "cpbcg_test_edit.capture"


@pytest.mark.parametrize("old", ["no such text", "return"])
def test_an_edit_of_text_that_does_not_stand_there_once_is_refused(old):
    with pytest.raises(AssertionError, match="the edit needs it once"):
        edited(f"cpbcg_test_{old.split()[0]}", [("layout", old, "pass")])


def test_an_edited_copy_leaves_no_byte_code(monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)

    def compiled():
        caches = (Path(cpbcg_ref.__file__).parent / "__pycache__").glob("*.pyc")
        return {path: path.read_bytes() for path in caches}

    before = compiled()
    edited("cpbcg_test_byte_code", [ALWAYS_ACTIVE])
    assert compiled() == before


BATCH = cases.Batch(lengths=(9, 9), prefixes=(64, 0))
SERVER = cases.Server(cp_size=4, capture_num_tokens=(9, 18, 27), context_length=64)
SELECT = cases.SelectCase(
    num_tokens=9, required_local_tokens=8, capture_num_tokens=(9, 18), bucket_local_tokens=((9, 8),)
)
CONFIG = cases.DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8)
PASS = (cases.RankReport(prefillable=True),) * 2


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (cases.LayoutCase(cp_size=4, batch=BATCH), 18 + 64 + 2),
        (cases.BadLayoutCase(cp_size=4, lengths=(9, -1, 0)), 10 + 3),
        (cases.CaptureCase(server=SERVER), 3),
        (SELECT, 2),
        (cases.SelectPairCase(base=SELECT, more=SELECT), 4),
        (cases.ReplayCase(server=SERVER, batches=(BATCH, BATCH)), 2 * 84),
        (cases.PassesCase(config=CONFIG, passes=(PASS,) * 3), 6),
        (cases.LastPassCase(config=CONFIG, history=(PASS,), last=PASS, other_last=PASS), 6),
        (cases.AttemptsCase(attempts=(cases.Attempt(),) * 5), 5),
        (cases.VotesCase(mid_chunk=(True, False), waiting=(0, 1)), 2),
    ],
)
def test_the_size_of_a_case_is_what_a_reader_has_to_look_at(case, expected):
    assert size(case) == expected


def test_every_kind_of_case_has_a_size():
    assert set(SIZES) == {family.case for family in FAMILIES.values()}
