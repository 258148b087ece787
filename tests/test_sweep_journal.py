"""The journal of a sweep: what was done is known again, and nothing else is taken for it."""

import json

import pytest

from cpbcg_ref.engines.reference import Hardened, Reference
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.sweeping.journal import Journal, code_of, default_file, key_of
from cpbcg_ref.sweeping.scope import Scope

KEY = {"target": "reference", "engine": "reference", "version": "1", "code": "abc", "scope": {"requests": 3}}
FOUND = {"layouts": 4, "violations": {}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "below" / "sweep.jsonl"


def kept(path):
    journal = Journal(path, KEY)
    journal.add("one", FOUND)
    journal.add("two", FOUND | {"layouts": 5})
    return path


def refused(path, key=KEY):
    with pytest.raises(InvalidInput) as problem:
        Journal(path, key)
    assert str(path) in str(problem.value)
    assert "delete the file" in str(problem.value)
    return str(problem.value)


def test_what_was_added_is_known_again(path):
    assert Journal(kept(path), KEY).done == {"one": FOUND, "two": FOUND | {"layouts": 5}}


def test_a_new_journal_knows_nothing(path):
    assert Journal(path, KEY).done == {}
    assert Journal(path, KEY).done == {}  # it begins with its key alone


def test_a_line_that_was_being_written_is_asked_again_and_the_next_one_begins_a_line(path):
    whole = kept(path).read_bytes()
    path.write_bytes(whole[:-9])
    journal = Journal(path, KEY)
    assert list(journal.done) == ["one"]
    journal.add("three", FOUND)
    assert list(Journal(path, KEY).done) == ["one", "three"]


def test_a_first_line_that_was_being_written_is_a_new_journal(path):
    Journal(path, KEY)
    path.write_bytes(path.read_bytes()[:20])
    assert Journal(path, KEY).done == {}
    Journal(path, KEY).add("one", FOUND)
    assert list(Journal(path, KEY).done) == ["one"]


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda text: text.replace('"layouts": 5', '"layouts": 6'), "line 3: .*its checksum is wrong"),
        (lambda text: text.replace('{"part": "one"', '{"part": one'), "line 2"),
        (lambda text: "[]\n" + text, "line 1"),
        (lambda text: text.replace('"sum"', '"some"'), "line 2"),
        (lambda text: "invariant,level\n", "line 1"),
        (lambda text: "dear diary", "no journal"),
        (lambda text: "\x00\xff\n" + text, "line 1"),
    ],
)
def test_a_spoilt_journal_is_refused_with_its_line(path, spoilt, said):
    text = kept(path).read_text()
    path.write_text(spoilt(text))
    with pytest.raises(InvalidInput, match=said):
        Journal(path, KEY)
    assert "delete the file" in refused(path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": "sglang"}, "it is of another sweep, target 'reference' and not 'sglang'"),
        ({"scope": {"requests": 4}}, "another sweep, scope {'requests': 3} and not {'requests': 4}"),
        ({"code": "abd"}, "the code has changed since"),
    ],
)
def test_a_journal_of_another_sweep_is_refused(path, changed, said):
    assert said in refused(kept(path), KEY | changed)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be used to resume: Is a directory"):
        Journal(tmp_path, KEY)


def test_a_key_is_plain_data_that_a_file_gives_back():
    key = key_of("reference", Reference(), Scope())
    assert json.loads(json.dumps(key)) == key


def test_other_code_has_another_checksum(tmp_path):
    adapter = tmp_path / "adapter.py"
    adapter.write_text(
        "from cpbcg_ref.engines.reference import Reference\n\n\nclass Engine(Reference):\n    roots = ()\n"
    )
    before = code_of(resolve(f"{adapter}:Engine"))
    assert before == code_of(resolve(f"{adapter}:Engine"))
    adapter.write_text(adapter.read_text() + "\n# changed\n")
    assert code_of(resolve(f"{adapter}:Engine")) != before


def test_sweeps_of_different_keys_lie_in_different_files(tmp_path, monkeypatch):
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path))
    keys = [key_of("reference", Reference(), Scope()), key_of("reference", Reference(), Scope(requests=3))]
    keys.append(key_of("reference:hardened", Hardened(), Scope()))
    files = {default_file(key) for key in keys}
    assert len(files) == 3
    assert {file.parent for file in files} == {tmp_path / "sweeps"}
