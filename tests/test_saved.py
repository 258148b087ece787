"""Failures kept as files: what is written is read back as it was, and nothing else is."""

import dataclasses
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from made_report import CASE, RESULTS, made_report
from saved_failures import SELECT, saved
from toys_dispatch import Toy

from cpbcg_ref import cases
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking.saved import failures_folder, files, find, id_of, keep, read, rebuilt, save
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.strategies import cases_for

WRITTEN = """\
{
  "id": "ID",
  "invariant": "select.fits-rows",
  "level": "MUST",
  "target": "adapter.py:Wrong",
  "engine": "wrong",
  "version": "1",
  "message": "bucket 27 has 8 rows, 16 are needed",
  "case": {
    "kind": "SelectCase",
    "num_tokens": 24,
    "required_local_tokens": 16,
    "capture_num_tokens": [27, 48],
    "bucket_local_tokens": [
      [27, 8],
      [48, 24]
    ],
    "max_padding_factor": 2,
    "min_replay_bucket": 0
  },
  "python": "SelectCase(num_tokens=24, required_local_tokens=16, capture_num_tokens=(27, 48), \
bucket_local_tokens=((27, 8), (48, 24)))",
  "profile": "ci",
  "seed": 7,
  "saved": "TIME"
}
"""
ID = id_of("select.fits-rows", SELECT)


def edited(path, edit):
    """The file's document after `edit` has changed it."""
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_the_file_is_json_that_a_person_can_read(tmp_path):
    one = saved(tmp_path)
    text = (tmp_path / f"{one.id}.json").read_text().replace(one.saved, "TIME").replace(one.id, "ID")
    assert text == WRITTEN
    assert list(tmp_path.iterdir()) == [tmp_path / f"{one.id}.json"]


def test_what_is_written_is_read_back(tmp_path):
    one = saved(tmp_path / "new" / "folder")
    assert read(tmp_path / "new" / "folder" / f"{one.id}.json") == one
    assert one.case == SELECT


def test_brackets_and_other_alphabets_in_a_message_survive(tmp_path):
    message = 'lengths [\n 9,\n 9 ] say "no" \u00e9\u4e2d \\ [ 1 ]'
    one = saved(tmp_path, message=message)
    assert read(tmp_path / f"{one.id}.json").message == message


CONTRACT = Contract(strategies=("zigzag", "interleave"), min_replay_bucket=True, dispatchers=Toy.contract.dispatchers)


def kind_and_invariant(family):
    return next(name for name, one in REGISTRY.items() if family in {part.family for part in one.parts})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_case_comes_back_as_it_was(family):
    name = kind_and_invariant(family)

    @settings(max_examples=40, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases_for(family, CONTRACT))
    def back(case):
        described = json.loads(json.dumps({"kind": type(case).__name__} | dataclasses.asdict(case)))
        again = rebuilt(described, name)
        assert (again, as_python(again), type(again)) == (case, as_python(case), type(case))

    back()


def test_the_id_is_the_same_on_every_machine_and_in_every_later_version():
    assert id_of("capacity.no-overflow", CASE) == "93655f8e"
    assert id_of("agree.bucket", CASE) != id_of("capacity.no-overflow", CASE)


def test_a_whole_number_and_the_same_as_a_float_are_one_failure(tmp_path):
    config = {"dp_size": 1, "max_delay_passes": 3, "max_running_requests": 8}
    whole, real = (cases.DelayerConfig(max_delay_ms=number, **config) for number in (600, 600.0))
    ids = {saved(tmp_path, cases.PassesCase(config=one, passes=()), "delay.reason").id for one in (whole, real)}
    assert len(ids) == len(files(tmp_path)) == 1
    assert read(files(tmp_path)[0]).id in ids


def test_no_test_touches_what_the_user_has_saved(tmp_path_factory):
    assert failures_folder().is_relative_to(tmp_path_factory.getbasetemp())


def test_a_later_find_replaces_an_earlier_one(tmp_path):
    saved(tmp_path, message="first", target="adapter.py:Other")
    one = saved(tmp_path, message="second")
    assert [read(path) for path in files(tmp_path)] == [one]
    assert (one.message, one.target) == ("second", "adapter.py:Wrong")


def test_the_folder_is_the_users_unless_the_environment_names_another(monkeypatch, tmp_path):
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path / "own"))
    assert failures_folder() == tmp_path / "own" / "failures"
    monkeypatch.setenv("CPBCG_STATE", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert failures_folder() == tmp_path / "state" / "cpbcg" / "failures"


@pytest.mark.parametrize(
    ("typed", "anywhere"),
    [
        ("sglang@../tree", "sglang@{above}/tree"),
        ("sglang@~/tree", "sglang@{home}/tree"),
        ("own/adapter.py:Engine", "{here}/own/adapter.py:Engine"),
        ("sglang==0.5.18", "sglang==0.5.18"),
        ("reference:hardened", "reference:hardened"),
        ("package.module:Engine", "package.module:Engine"),
        ("other@x", "other@x"),
    ],
)
def test_a_path_means_the_same_from_every_folder_unless_the_file_lies_in_a_repository(
    tmp_path, monkeypatch, typed, anywhere
):
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    full = anywhere.format(here=tmp_path, above=tmp_path.parent, home=tmp_path / "home")
    assert saved(failures_folder(), target=typed).target == full
    assert saved(tmp_path / "repository", target=typed).target == typed


def test_a_check_keeps_unexpected_failures_only(tmp_path):
    report = keep(made_report(), tmp_path, options=" --failures here")
    names = [path.stem for path in files(tmp_path)]
    kept = {result.invariant: result.replay for result in report.results if result.replay}
    assert sorted(kept) == ["capacity.no-overflow", "delay.budget"]
    assert sorted(kept.values()) == [f"cpbcg replay {name} --failures here" for name in names]
    one = read(find(kept["capacity.no-overflow"].split()[2], tmp_path))
    facts = (one.case, one.target, one.engine, one.version, one.profile, one.seed, one.level)
    assert facts == (CASE, "sglang==0.5.17", "sglang", "0.5.17", "ci", 0, "MUST")


def test_a_known_failure_is_not_kept(tmp_path):
    known = dataclasses.replace(RESULTS[1], known=True)
    report = made_report(results=(known,))
    assert keep(report, tmp_path) == report
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda d: d.pop("id"), "is no saved failure: the document: Object missing required field `id`"),
        (lambda d: d.update(seed="7"), "is no saved failure: seed: Expected `int`, got `str`"),
        (lambda d: d.update(case=[1]), "case is [1]: it must be an object with the fields of a case"),
        (lambda d: d.update(id="00000000"), f"id is '00000000': this invariant and this case make it {ID} (was the"),
        (lambda d: d["case"].update(num_tokens=25), f"id is '{ID}': this invariant and this case make it "),
        (lambda d: d["case"].update(num_tokens="24"), "case.num_tokens: Expected `int`, got `str`"),
        (lambda d: d["case"].update(num_tokens=True), "case.num_tokens: Expected `int`, got `bool`"),
        (lambda d: d["case"].pop("num_tokens"), "case: Object missing required field `num_tokens`"),
        (lambda d: d["case"]["bucket_local_tokens"][1].append(3), "case.bucket_local_tokens[1]: Expected `array` of l"),
        (lambda d: d["case"].update(floor=3), "case.floor is no field of a SelectCase"),
        (lambda d: d["case"].pop("kind"), "case.kind is None: select.fits-rows is asked with a SelectCase"),
        (lambda d: d["case"].update(kind=["x"]), "case.kind is ['x']: select.fits-rows is asked with a SelectCase"),
        (
            lambda d: d["case"].update(kind="Server"),
            "case.kind is 'Server': select.fits-rows is asked with a SelectCase",
        ),
        (lambda d: d.update(invariant="agree.bucket"), "case.kind is 'SelectCase': agree.bucket is asked with a Disp"),
        (
            lambda d: d.update(invariant="select.fit-rows"),
            "invariant is 'select.fit-rows', which there is not: did you ",
        ),
        (lambda d: d.update(invariant="zzz"), "which there is not: did you mean one of `cpbcg invariants`?"),
    ],
)
def test_an_edited_file_is_refused_with_the_place_and_the_rule(tmp_path, edit, sentence):
    path = find(saved(tmp_path).id, tmp_path)
    edited(path, edit)
    with pytest.raises(InvalidInput) as problem:
        read(path)
    assert str(problem.value).startswith(str(path))
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


def test_an_unknown_field_is_found_at_any_depth(tmp_path):
    path = find(saved(tmp_path, CASE, "capacity.no-overflow").id, tmp_path)
    edited(path, lambda document: document["case"]["batches"][0].update(num_tokens=27))
    with pytest.raises(InvalidInput, match=r"case\.batches\[0\]\.num_tokens is no field of a ReplayCase"):
        read(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot be read as JSON: "),
        (b"\xff\xfe{}", "cannot be read as JSON: "),
        (b"[" * 100_000, "cannot be read as JSON: "),
        (b"[]", "is no saved failure: the document: Expected `object`, got `array`"),
        (b"{}", "is no saved failure: the document: Object missing required field `id`"),
    ],
)
def test_a_foreign_file_is_refused_in_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as problem:
        read(path)
    assert str(problem.value).startswith(f"{path} {sentence}")


def test_a_file_under_another_name_is_refused(tmp_path):
    path = find(saved(tmp_path).id, tmp_path)
    path = path.rename(tmp_path / "mine.json")
    with pytest.raises(InvalidInput, match=rf"the file of failure {ID} is called {ID}\.json"):
        read(path)


def test_a_failure_is_found_by_id_beginning_or_path(tmp_path):
    one = saved(tmp_path)
    path = tmp_path / f"{one.id}.json"
    assert {find(name, tmp_path) for name in (one.id, one.id[:1], one.id[:5].upper(), str(path))} == {path}


def test_an_ambiguous_or_unknown_id_is_told_what_is_near(tmp_path):
    for name in ("3f9c2ab1", "3f9c2ac0", "abcdef01"):
        (tmp_path / f"{name}.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"'3f9' is the beginning of 2 ids: 3f9c2ab1, 3f9c2ac0$"):
        find("3f9", tmp_path)
    with pytest.raises(InvalidInput, match=r"no failure 'abcdef02' is saved in .*: did you mean abcdef01"):
        find("abcdef02", tmp_path)
    with pytest.raises(InvalidInput, match=r"no failure '' is saved"):
        find("", tmp_path)
    with pytest.raises(InvalidInput, match=r"no failure 'x' is saved in .*: nothing is$"):
        find("x", tmp_path / "none")


def test_a_reader_never_meets_half_a_file(tmp_path, monkeypatch):
    saved(tmp_path, message="first")
    replace = os.replace
    seen = []

    def look(source, target):
        seen.append(read(files(tmp_path)[0]).message)
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    saved(tmp_path, message="second")
    assert seen == ["first"]


def test_a_result_without_a_case_cannot_be_saved(tmp_path):
    with pytest.raises(AssertionError, match="only a result with a case"):
        save(dataclasses.replace(RESULTS[1], counterexample=None), tmp_path)
