"""Search state: what failed for one is found at once by the other, and nobody finds what is not his."""

import sys
from itertools import product

import fakeredis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase

from cpbcg_ref.checking.database import Under, open_database
from cpbcg_ref.checking.rounds import Job, Searcher
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.errors import CpbcgError

FITS, CAPTURED = ("select.fits-tokens", 0), ("select.captured", 0)


class AlwaysOne(Reference):
    name = "always one"

    def select_replay_bucket(self, **asked):
        return 1


class AlwaysRight(Reference):
    name = AlwaysOne.name


def search(database, *, engine=AlwaysOne, key=FITS, seed=1, shrink=False):
    """How one invariant fares in a round on that engine."""
    searcher = Searcher(checker=Checker(engine=engine(), target="x", profile="dev"), database=database)
    (fared,) = searcher.do(Job(family="select", keys=(key,), seed=seed, seconds=30, shrink=shrink)).parts
    return fared


def fill(database, **how):
    assert search(database, shrink=True, **how).found.shrunk
    return database


def stored(database, **how):
    """Was the violation there already, found in the first example and with nothing left to shrink?"""
    fared = search(database, seed=2, **how)
    assert fared.found
    assert not fared.found.stored or (fared.examples, fared.found.shrunk) == (1, True)
    return fared.found.stored


def on_one_server(monkeypatch):
    server = fakeredis.FakeServer()
    monkeypatch.setattr("redis.Redis.from_url", lambda url, **options: fakeredis.FakeRedis(server=server))


@pytest.mark.parametrize("place", ["folder", "redis://shared:6379/0", "unix:///run/redis.sock"])
def test_what_one_machine_found_the_other_finds_in_its_first_example(tmp_path, monkeypatch, place):
    on_one_server(monkeypatch)
    where = str(tmp_path) if place == "folder" else place
    assert not stored(open_database(where))
    fill(open_database(where))
    assert stored(open_database(where))


def test_the_copy_of_ci_is_read_and_never_changed(tmp_path):
    fill(DirectoryBasedExampleDatabase(tmp_path / "ci"))
    before = {path: path.read_bytes() for path in (tmp_path / "ci").rglob("*") if path.is_file()}
    for own in (str(tmp_path / "own"), "none"):
        assert stored(open_database(own, ci=tmp_path / "ci"))
    assert not search(open_database("none", ci=tmp_path / "ci"), engine=AlwaysRight).found
    assert {path: path.read_bytes() for path in (tmp_path / "ci").rglob("*") if path.is_file()} == before


def test_with_a_copy_of_ci_ones_own_findings_go_to_ones_own_folder(tmp_path):
    (tmp_path / "ci").mkdir()
    fill(open_database(str(tmp_path / "own"), ci=tmp_path / "ci"))
    assert stored(open_database(str(tmp_path / "own")))
    assert list((tmp_path / "ci").iterdir()) == []


def test_engines_families_invariants_and_parts_do_not_share_examples():
    searcher = Searcher(checker=Checker(engine=Reference(), target="x"), database=InMemoryExampleDatabase())
    named = product(("one", "other"), ("select", "select-pair"), ("select.minimal", "select.complete"), (0, 1))
    own = []
    for engine, family, invariant, part in named:
        searcher.checker.engine.name = engine
        own.append(searcher.own(family, (invariant, part)))
    for i, database in enumerate(own):
        database.save(b"key", b"%d" % i)
    assert [list(database.fetch(b"key")) for database in own] == [[b"%d" % i] for i in range(16)]


def test_what_fails_one_invariant_is_not_tried_on_another():
    assert not stored(fill(InMemoryExampleDatabase(), key=FITS), key=CAPTURED)


def test_the_keys_depend_neither_on_the_seed_nor_on_where_the_engine_is():
    Elsewhere = type("Elsewhere", (AlwaysOne,), {"roots": ("/elsewhere",), "version": "2"})
    first = fill(InMemoryExampleDatabase(), seed=1).data
    second = fill(InMemoryExampleDatabase(), seed=3, engine=Elsewhere).data
    assert sorted(first) == sorted(second) != []


def test_an_example_that_fails_no_more_is_forgotten():
    database = fill(InMemoryExampleDatabase())
    assert not search(database, engine=AlwaysRight).found
    assert not stored(database)


class Gone(InMemoryExampleDatabase):
    """A server that went away."""

    def fetch(self, key):
        yield from {}[key]

    def save(self, key, value):
        {}[key].add(value)


def test_when_the_database_is_lost_the_search_goes_on_and_says_so():
    searcher = Searcher(checker=Checker(engine=AlwaysOne(), target="x", profile="dev"), database=Gone())
    for shrink in (False, True):
        done = searcher.do(Job(family="select", keys=(FITS,), seed=1, seconds=30, shrink=shrink))
        assert done.lost.startswith("the database does not answer: KeyError: ")
        assert done.parts[0].found
        assert not done.parts[0].error


def test_moving_an_example_stays_under_the_name():
    shared = InMemoryExampleDatabase()
    own, other = Under(shared, "own"), Under(shared, "other")
    own.save(b"a", b"example")
    own.move(b"a", b"b", b"example")
    assert [list(own.fetch(key)) for key in (b"a", b"b")] == [[], [b"example"]]
    assert not list(other.fetch(b"b"))


def test_without_a_database_nothing_is_kept_and_the_default_is_the_users_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path))
    assert open_database("none") is None
    assert list(tmp_path.iterdir()) == []
    assert open_database().path == tmp_path / "examples"


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("http://host/x", "http:// is no database: write a folder, none, or redis://, rediss://, unix://"),
        ("redis://127.0.0.1:1/0", "no database at redis://127.0.0.1:1/0: Error 111"),
        ("redis://me:secret@127.0.0.1:1/0", "no database at redis://127.0.0.1:1/0: "),
        ("redis://[", "no database at redis://[: "),
        ("unix:///no/such.sock", "no database at unix:///no/such.sock: "),
        (__file__, f"no database in {__file__}: File exists"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence(where, sentence):
    with pytest.raises(CpbcgError) as problem:
        open_database(where)
    assert str(problem.value).startswith(sentence)
    assert "secret" not in str(problem.value)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(CpbcgError, match="no permission to read and write"):
        open_database(str(tmp_path))


def test_a_copy_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(CpbcgError, match=r"there is no folder .*absent: name the copy"):
        open_database("none", ci=tmp_path / "absent")


def test_without_the_package_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "hypothesis.extra.redis", raising=False)
    with pytest.raises(CpbcgError, match=r"pip install 'cpbcg\[redis\]'"):
        open_database("redis://host:6379/0")
