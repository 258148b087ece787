"""An engine that does not come back from a case: said so by every command, and the rest goes on."""

import signal

import pytest
from saved_failures import saved

from cpbcg_ref import cli
from cpbcg_ref.cases import SelectCase
from cpbcg_ref.checking import answering, hunting
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults import FAULTS, Fault

ADAPTER = """
import time
from cpbcg_ref.engines.reference import Reference

class Loops(Reference):
    def select_replay_bucket(self, **asked):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass

class LoopsLater(Reference):  # gone after the first case that shows that it is wrong: a case is asked twice
    wrong = 0
    def select_replay_bucket(self, *, num_tokens, **asked):
        self.wrong += num_tokens > 1
        while self.wrong > 2:
            time.sleep(0.01)
        return 1
"""


class Loops(Reference):
    """Never comes back from a selection."""

    def select_replay_bucket(self, **question):
        while True:
            pass


def only_alarms(number, handler, *, install=signal.signal):
    """Ctrl-C stays the test's."""
    return install(number, handler) if number == signal.SIGALRM else None


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(answering, "ANSWER_S", 1.0)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """run("check", ...) -> (exit code, stdout, stderr) in a folder with adapter.py."""
    monkeypatch.setattr("signal.signal", only_alarms)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter.py").write_text(ADAPTER)

    def command(*args):
        with pytest.raises(SystemExit) as end:
            cli.main(list(args))
        return end.value.code, *(" ".join(text.replace(str(tmp_path), "DIR").split()) for text in capsys.readouterr())

    return command


def test_a_check_says_where_the_engine_hangs_and_judges_the_rest(run, monkeypatch):
    monkeypatch.setattr(answering, "ANSWER_S", 3.0)  # the first cases are recorded, which is slow
    code, out, err = run("check", "adapter.py:Loops", "--select", "select.pure,delay.recent-size", "--no-save")
    assert (code, err) == (2, "")
    assert "ERROR select.pure: Hangs: no answer within 3 s (DIR/adapter.py:" in out
    assert "1 pass" in out


def test_what_was_found_before_the_engine_hung_stands(run):
    code, out, _ = run("check", "adapter.py:LoopsLater", "--select", "select.fits-tokens", "--no-save")
    assert code == 1
    assert "FAIL select.fits-tokens: bucket 1 for " in out


def test_a_miniature_that_hangs_is_not_caught_and_those_beside_it_are(trials_of, monkeypatch):
    monkeypatch.setattr(hunting, "ROUNDS", 1)
    monkeypatch.setattr("signal.signal", only_alarms)
    told = {"wrong": "see the test", "source": "", "expected": ("select.pure",), "smallest": 1}
    monkeypatch.setitem(FAULTS, "fake", Fault(key="fake", engine_type=Loops, **told))
    code, told, out, err = trials_of("--select", "fake,argument-mutated")
    assert (code, err) == (1, "")
    assert {one["key"]: one["caught"] for one in told["faults"]} == {"fake": False, "argument-mutated": True}
    assert "NOT CAUGHT fake: not in every trial by select.pure: Hangs: no answer within 1 s" in out


def test_a_replayed_failure_on_an_engine_that_hangs_is_an_error(run, tmp_path):
    saved(tmp_path / "failures")
    code, out, _ = run("replay", "--all", "--failures", "failures", "--target", "adapter.py:Loops")
    assert code == 2
    assert "no verdict, Hangs: no answer within 1 s (adapter.py:" in out


def test_in_a_process_that_is_not_ours_no_timer_is_set():
    timers = []

    class Looks(Reference):
        def select_replay_bucket(self, **question):
            timers.append(signal.getitimer(signal.ITIMER_REAL))

    case = SelectCase(num_tokens=2, required_local_tokens=1, capture_num_tokens=(4,), bucket_local_tokens=((4, 2),))
    answering.ask(Looks(), "select", case)
    assert timers == [(0.0, 0.0)] * 2
