"""The suite in somebody else's tests: what passes, what raises and with which text, and what it leaves as it was."""

import json
import pickle
import subprocess
import sys
import threading
import unittest
import warnings

import hypothesis
import pytest
from hypothesis.configuration import storage_directory
from made_report import made_report, only
from toys import Toy

from cpbcg_ref import testing
from cpbcg_ref.cases import Deployment, Server
from cpbcg_ref.errors import InvalidInput, TargetError
from cpbcg_ref.testing import ConformanceWarning, NotConformant, conformance_tests, run_conformance

QUICK = {"profile": "dev", "select": "select.fits-rows, select.padding-bound"}


class TokensAlone(Toy):
    """Picks the bucket by the number of tokens alone. `asked` counts."""

    asked = 0

    def allowed(self, bucket, *, bucket_local_tokens, **asked):
        self.asked += 1
        return super().allowed(bucket, bucket_local_tokens=dict.fromkeys(bucket_local_tokens, 10**9), **asked)


class NoSelector(Toy):
    select_replay_bucket = None


def raised_by(engine, **options):
    with pytest.raises(NotConformant) as caught:
        run_conformance(engine, **options)
    return caught.value


def test_what_holds_is_reported():
    report = run_conformance(Toy(), **QUICK)
    ids = ["select.fits-rows", "select.padding-bound"]
    assert [(one.invariant, one.outcome) for one in report.results] == [(name, "pass") for name in ids]
    assert (report.engine, report.target) == ("toy", "toys:Toy")


def test_a_violation_is_told_with_sentence_picture_smallest_case_and_the_line_that_shows_it_again():
    error = raised_by(TokensAlone(), **QUICK)
    assert isinstance(error, AssertionError)
    assert (
        str(error)
        == """\
toy 1: 1 MUST violated, 1 pass

FAIL select.fits-rows: bucket 1 for 1 tokens, 1 rows: too few rows: 0 captured, 1 needed

    1 tokens, 1 rows per rank: answered 1
    bucket  captured rows  by the specification
    1       0              too few rows: 0 captured, 1 needed

  smallest case, to pin on any test with @given(case=cases_for(...)),
  after `from hypothesis import example` and `from cpbcg_ref.cases import *`:
    @example(case=SelectCase(num_tokens=1, required_local_tokens=1, capture_num_tokens=(1,),
        bucket_local_tokens=((1, 0),)))

  reproduce:
    run_conformance(engine, select='select.fits-rows', profile='dev', seed=0)
"""
    )
    assert [one.outcome for one in error.report.results] == ["fail", "pass"]


def test_it_travels_between_the_processes_of_a_test_runner():
    error = raised_by(TokensAlone(), **QUICK)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.report) == (NotConformant, str(error), error.report)


def test_the_line_that_reproduces_it_does():
    found = raised_by(TokensAlone(), **QUICK).report.results[0]
    with pytest.raises(NotConformant) as again:
        exec(found.reproduce, {"run_conformance": run_conformance, "engine": TokensAlone()})
    assert again.value.report.results[0].counterexample == found.counterexample


def test_a_target_is_reproduced_on_the_command_line():
    error = raised_by("fault:overflow", select="select.fits-rows", profile="dev")
    assert "    cpbcg check fault:overflow --select select.fits-rows --profile dev --seed 0\n" in str(error)


SERVER = Deployment(server=Server(cp_size=2, capture_num_tokens=(8, 16), context_length=16))


@pytest.mark.parametrize("engine", [TokensAlone(), "fault:overflow"])
def test_what_a_deployment_shows_is_reproduced_with_it(engine):
    found = raised_by(engine, select="select.fits-rows", profile="dev", deployment=SERVER).report.results[0]
    assert "deployment=Deployment(server=Server(cp_size=2, " in found.reproduce
    names = {"Deployment": Deployment, "Server": Server, "engine": engine, "run_conformance": run_conformance}
    with pytest.raises(NotConformant) as again:
        exec(found.reproduce, names)
    assert again.value.report.results[0].message == found.message


def test_a_broken_adapter_never_passes():
    class Broken(Toy):
        roots = (json.__file__,)

        def select_replay_bucket(self, **asked):
            raise KeyError("ladder")

    error = raised_by(Broken(), **QUICK)
    assert "toy 1: 0 MUST violated, 2 error\n" in str(error)
    assert "ERROR select.fits-rows, select.padding-bound: KeyError: 'ladder'\n" in str(error)


def returning(monkeypatch, *results):
    monkeypatch.setattr(testing, "check_here", lambda *_, **how: made_report(results=results))


@pytest.mark.parametrize("wrong", [("fail", "MUST"), ("unwitnessed", "MUST"), ("error", "MUST"), ("error", "SHOULD")])
def test_whatever_would_not_exit_0_raises(monkeypatch, wrong):
    returning(monkeypatch, *only(("pass", "MUST"), wrong))
    assert f"{wrong[0]} {wrong[1]}" in str(raised_by(Toy()))


@pytest.mark.parametrize("outcome", ["fail", "unwitnessed"])
def test_advice_warns_and_raises_only_where_it_is_strict(monkeypatch, outcome):
    returning(monkeypatch, *only(("pass", "MUST"), (outcome, "SHOULD")))
    with pytest.warns(ConformanceWarning, match=f"x.b: {outcome} SHOULD") as caught:
        run_conformance(Toy())
    assert caught[0].filename == __file__
    if outcome == "fail":
        raised_by(Toy(), strict=True)


def test_what_was_not_asked_is_one_warning_with_the_reasons():
    asked = "select.fits-rows,select.padding-bound,delay.own-slots,capture.*"
    with pytest.warns(ConformanceWarning) as caught:
        run_conformance(NoSelector(), profile="dev", select=asked)
    (only,) = caught
    assert str(only.message).split("\n") == [
        "toy 1: 0 MUST violated, 1 pass, 3 skip",
        "",
        "SKIP select.fits-rows, select.padding-bound: the adapter has no select_replay_bucket",
        "SKIP delay.own-slots: the adapter has no start_delayers",
    ]


def test_what_is_excluded_is_neither_asked_nor_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = run_conformance(TokensAlone(), **QUICK, exclude=["select.fits-rows", "delay.*"])
    assert [one.invariant for one in report.results] == ["select.padding-bound"]


def test_an_engine_of_which_nothing_could_be_asked_does_not_pass():
    assert "toy 1: 0 MUST violated, 2 skip: nothing could be asked\n" in str(raised_by(NoSelector(), **QUICK))


KNOWN = '[[failure]]\nid = "select.fits-rows"\nreason = "rows are not counted"\nlink = "https://example.org/1"\n'


@pytest.fixture
def known(tmp_path):
    file = tmp_path / "known.toml"
    file.write_text(KNOWN)
    return file


def test_a_known_failure_passes_and_is_marked(known):
    report = run_conformance(TokensAlone(), **QUICK, known_failures=known)
    assert [(one.outcome, one.known) for one in report.results] == [("fail", True), ("pass", False)]


def test_a_known_failure_is_not_shrunk(known):
    told, shrunk = TokensAlone(), TokensAlone()
    run_conformance(told, **QUICK, known_failures=known)
    raised_by(shrunk, **QUICK)
    assert told.asked < shrunk.asked


def test_a_known_failure_that_is_gone_raises(known):
    assert "but it no longer fails:\n    remove its entry" in str(raised_by(Toy(), **QUICK, known_failures=str(known)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"select": "select.pur"}, "no invariant is called 'select.pur': did you mean select.pure"),
        ({"exclude": ["layuot.causal"]}, "no invariant is called 'layuot.causal': did you mean layout.causal"),
        ({"select": "select.*", "exclude": ["select.*"]}, r"nothing is left to check: select \['select.\*'\]"),
        ({"profile": "slow"}, "profile is 'slow': it is one of dev, ci, nightly"),
        ({"known_failures": "/no/such.toml"}, "/no/such.toml: cannot be read as TOML"),
        ({"deployment": "/no/such.toml"}, "/no/such.toml: cannot be read as TOML"),
    ],
)
def test_a_wrong_option_is_one_sentence(options, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        run_conformance(Toy(), **options)


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (Toy, "Toy is a class: pass an object of it"),
        (type("Plain", (), {})(), "Plain': the object has no name"),
        (type("Rootless", (Toy,), {"roots": ()})(), "roots must be a non-empty tuple of paths"),
    ],
)
def test_what_is_no_adapter_is_one_sentence(engine, sentence):
    with pytest.raises(TargetError, match=sentence):
        run_conformance(engine, **QUICK)


def test_a_deployment_is_what_every_case_has(tmp_path):
    (tmp_path / "server.toml").write_text("[server]\ncp_size = 1\ncapture_num_tokens = [64]\ncontext_length = 64\n")
    with pytest.warns(ConformanceWarning, match="this server never shards a batch"):
        report = run_conformance(
            Toy(), select="layout.causal,select.padding-bound", deployment=tmp_path / "server.toml"
        )
    assert report.about_deployment


def test_hypothesis_is_as_it_was_and_a_strange_profile_changes_nothing(tmp_path, monkeypatch):
    expected, home = str(raised_by(TokensAlone(), **QUICK)), storage_directory(intent_to_write=False).path
    hypothesis.settings.register_profile(
        "strange", max_examples=1, phases=(), derandomize=True, verbosity=hypothesis.Verbosity.debug
    )
    former = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile("strange")
    try:
        assert str(raised_by(TokensAlone(), **QUICK)) == expected
        assert hypothesis.settings.get_current_profile_name() == "strange"
        assert hypothesis.settings.default.max_examples == 1
    finally:
        hypothesis.settings.load_profile(former)
    assert storage_directory(intent_to_write=False).path == home


def outcomes(tests):
    """By id: "pass", or the exception's class and text."""
    told = {}
    for test in tests:
        try:
            told[test.__name__] = test().outcome
        except (NotConformant, unittest.SkipTest) as ended:
            told[test.__name__] = type(ended), str(ended)
    return told


def test_one_test_per_invariant_tells_each_alone():
    told = outcomes(conformance_tests(TokensAlone(), **QUICK))
    assert told["select.padding-bound"] == "pass"
    kind, text = told["select.fits-rows"]
    assert kind is NotConformant
    assert text.startswith("toy 1: 1 MUST violated\n\nFAIL select.fits-rows: ")


def test_a_test_whose_invariant_cannot_be_asked_is_skipped_with_the_reason():
    told = outcomes(conformance_tests(NoSelector(), **QUICK))
    assert told["select.fits-rows"] == (unittest.SkipTest, "the adapter has no select_replay_bucket")


def test_a_test_of_a_known_failure_is_skipped_with_reason_link_and_sentence(known):
    kind, text = outcomes(conformance_tests(TokensAlone(), **QUICK, known_failures=known))["select.fits-rows"]
    assert kind is unittest.SkipTest
    assert text.startswith("known failure: rows are not counted (https://example.org/1): bucket ")


def test_the_tests_share_the_answers_to_a_family_of_cases():
    engine = TokensAlone()
    tests = conformance_tests(engine, **QUICK)
    with pytest.raises(NotConformant):
        tests[0]()
    asked = engine.asked
    tests[1]()
    assert engine.asked == asked > 0


def test_the_tests_of_a_target_are_listed_without_obtaining_it():
    tests = conformance_tests("sglang==999.0", select="layout.*")
    with pytest.raises(TargetError):
        tests[0]()


OWN_TESTS = """
import unittest, pytest
from hypothesis import given, settings, strategies as st
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.testing import conformance_tests, run_conformance

class TokensAlone(Reference):
    def select_replay_bucket(self, **asked):
        return min((one for one in asked["capture_num_tokens"] if one >= asked["num_tokens"]), default=None)

HOW = {"select": "select.fits-rows,delay.reason", "profile": "dev"}

@pytest.mark.parametrize("test", conformance_tests(TokensAlone(), **HOW))
def test_each(test):
    test()

class TestOwn(unittest.TestCase):
    def test_all(self):
        run_conformance(TokensAlone(), **HOW)

    def test_each(self):
        for test in conformance_tests(TokensAlone(), **HOW):
            with self.subTest(test.__name__):
                test()
"""


@pytest.fixture
def repository(tmp_path):
    """repository(*options) -> output of python with these options, in a folder with a stranger's tests."""
    (tmp_path / "test_own.py").write_text(OWN_TESTS)

    def run(*command):
        ended = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        return ended.stdout + ended.stderr

    return run


def test_pytest_shows_the_callers_line_and_the_finding_on_workers_too(repository):
    out = repository("pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "-k", "not TestOwn")
    assert "1 failed, 1 passed" in out
    assert "FAILED test_own.py::test_each[select.fits-rows]" in out
    assert ">       test()\n" in out
    assert "E       FAIL select.fits-rows: bucket 1 for 1 tokens, 1 rows: too few rows: 0 captured, 1 needed\n" in out
    assert "testing.py:" not in out


def test_unittest_reads_it_as_it_is_and_nothing_is_left_behind(repository, tmp_path):
    out = repository("unittest", "test_own")
    assert "FAILED (failures=2)" in out
    assert "FAIL: test_each (test_own.TestOwn.test_each) [select.fits-rows]" in out
    assert "\nFAIL select.fits-rows: bucket 1 for 1 tokens, 1 rows" in out
    assert {path.name for path in tmp_path.iterdir()} <= {"test_own.py", "__pycache__"}


def test_importing_it_loads_no_pytest():
    code = "import sys; from cpbcg_ref.testing import run_conformance; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_an_engine_is_asked_in_the_callers_thread():
    class Bound(Toy):
        def __init__(self):
            self.thread = threading.get_ident()

        def select_replay_bucket(self, **asked):
            assert threading.get_ident() == self.thread
            return super().select_replay_bucket(**asked)

    assert run_conformance(Bound(), **QUICK).exit_code == 0
