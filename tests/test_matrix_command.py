"""`cpbcg matrix` with real checks in processes: what goes wrong with one target is told, and the others still run."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from made_matrix import COLUMNS

from cpbcg_ref import cli
from cpbcg_ref.report.matrixtable import Watcher

COMMAND = [sys.executable, "-m", "cpbcg_ref.cli", "matrix"]
QUICK = ("--select", "select.pure", "--profile", "dev", "-n", "2")
ADAPTERS = """
import os, sys, time
from pathlib import Path
from cpbcg_ref.engines.reference import Reference

class Loud(Reference):
    name = "loud"
    def __init__(self):
        super().__init__()
        print("a word on stdout")
        os.write(1, b"and one past Python")

class Dies(Reference):
    def __init__(self):
        os._exit(7)

class DiesLater(Reference):
    def select_replay_bucket(self, **asked):
        os._exit(9)

class Raises(Reference):
    def __init__(self):
        raise KeyError("cp")

class Meets(Reference):  # is there only while another is being made
    def __init__(self):
        super().__init__()
        Path(__file__).with_name(f"{os.getpid()}.here").touch()
        until = time.monotonic() + float(os.environ["PATIENCE"])
        while len(list(Path(__file__).parent.glob("*.here"))) < 2:
            if time.monotonic() > until:
                raise TimeoutError("alone")
            time.sleep(0.02)

class Meets2(Meets):
    pass

class Sleeps(Reference):
    def select_replay_bucket(self, **asked):
        with Path(__file__).with_name(f"{os.getpid()}.pid").open("w"):
            time.sleep(600)
"""


@pytest.fixture
def adapters(tmp_path):
    """adapters("Loud") -> a target of this file."""
    (tmp_path / "adapters.py").write_text(ADAPTERS)
    return lambda name: f"{tmp_path / 'adapters.py'}:{name}"


@pytest.fixture
def run(capfd, monkeypatch):
    """run(...) -> (exit code, stdout, stderr)."""
    before = signal.getsignal(signal.SIGINT)

    def command(*args):
        with pytest.raises(SystemExit) as end:
            cli.main(["matrix", *map(str, args)])
        return end.value.code, *capfd.readouterr()

    yield command
    signal.signal(signal.SIGINT, before)


def test_a_target_that_fails_in_any_way_is_an_error_in_its_column_and_the_others_still_run(run, adapters, tmp_path):
    broken = ["sglang==0.0.1", adapters("Dies"), adapters("DiesLater"), adapters("Raises")]
    file = tmp_path / "matrix.json"
    code, out, err = run("reference", *broken, *QUICK, "--json", file)
    found = json.loads(file.read_text())
    assert code == found["exit_code"] == 2
    assert found["targets"]["reference"]["results"][0]["outcome"] == "pass"
    unknown, died, later, raised = (found["problems"][target] for target in broken)
    assert "sglang==0.0.1 is not a release with a known sha256" in unknown
    assert died == "its process ended early (exit code 7)"
    assert later == "a worker process died while it ran the engine's code: run with --select to find where"
    assert raised == f"{broken[3]!r}: Raises() raised KeyError: 'cp'"
    for target in broken:
        assert err.count(f"{target}: error: {found['problems'][target]}\n") == 1
        assert f"ERROR {target}: " in out.replace("\n    ", " ")
    assert "Traceback" not in err


@pytest.mark.parametrize(("workers", "patience", "code"), [(2, "60", 0), (1, "0.1", 2)])
def test_as_many_targets_are_checked_at_a_time_as_are_asked_for(run, adapters, monkeypatch, workers, patience, code):
    monkeypatch.setenv("PATIENCE", patience)
    both = adapters("Meets"), adapters("Meets2")
    assert run(*both, "--select", "select.pure", "--profile", "dev", "-n", workers)[0] == code


def test_a_violated_must_counts_more_than_a_target_that_could_not_be_had(run):
    code, out, _ = run("no-such-engine", "fault:overflow", "--select", "capacity.no-overflow", "--profile", "dev")
    assert code == 1
    assert "FAIL capacity.no-overflow: rank 0 needs 12 rows" in out


def test_progress_and_what_engines_print_go_to_stderr_only(run, adapters):
    loud = adapters("Loud")
    code, out, err = run(loud, "reference", "reference", *QUICK, "--json", "-")
    found = json.loads(out)
    assert (code, found["asked"]) == (0, [loud, "reference"])
    assert found["command"] == f"cpbcg matrix {loud} reference --select select.pure --profile dev --seed 0"
    assert "a word on stdout" in err
    assert "and one past Python" in err
    assert "[2 of 2] " in err
    assert "0 MUST violated, 1 pass" in err


def test_every_form_is_written_where_it_is_asked_for(run, tmp_path):
    html, badges = tmp_path / "page.html", tmp_path / "new" / "badges"
    code, out, _ = run("reference", *QUICK, "--html", html, "--badges", badges, "--markdown", "-")
    assert code == 0
    assert out.startswith("# Conformance matrix\n")
    assert "| select.pure | pass |" in out
    assert html.read_text().startswith("<!doctype html>")
    assert json.loads((badges / "reference.json").read_text())["message"] == "1 pass"


def test_a_release_without_a_known_sum_is_fetched_only_when_that_is_allowed_and_then_said(run, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    code, out, err = run("sglang==0.0.1", *QUICK, "--allow-unpinned", "--json", "-")
    assert code == 2
    assert json.loads(out)["command"].endswith("--seed 0 --allow-unpinned")
    assert "sglang==0.0.1: downloading sglang==0.0.1\n" in err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--json", "-", "--html", "-"], "only one of them can go to stdout"),
        (["--html", "no/such/folder/x.html"], "cannot write no/such/folder/x.html"),
        (["--select", "select.purr"], "no invariant is called 'select.purr'"),
        (["-n", "0"], "0 is not in the range"),
    ],
)
def test_bad_usage_is_one_sentence_before_anything_runs(run, args, sentence):
    code, out, err = run("reference", *args)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert "[1 of 1]" not in err


def test_ctrl_c_ends_every_process_and_leaves_nothing_behind(adapters, tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    environment = os.environ | {"TMPDIR": str(temp)}
    command = [*COMMAND, adapters("Sleeps"), *QUICK]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (asleep := list(tmp_path.glob("*.pid"))) and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err.endswith("interrupted\n")
    assert list(temp.iterdir()) == []
    (pid,) = [int(file.stem) for file in asleep]
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid):
    """A process that has ended and waits for its parent to notice is not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_one_line_per_running_target(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", Terminal())
    watcher = Watcher(3)
    watcher.progressed("sglang==[b]1", 2, 9)
    watcher.progressed("other==1", 3, 7)
    watcher.look()
    watcher.ended(COLUMNS[1])
    watcher.look()
    watcher.stop()
    drawn = sys.stderr.getvalue()
    both, said, one = drawn.partition("[1 of 3] other==1: other 1: 0 MUST violated")
    assert said
    assert "sglang==[b]1: 2 of 9 families of cases" in both
    assert "other==1: 3 of 7 families of cases" in both
    assert "sglang==[b]1: 2 of 9" in one
    assert "other==1: 3 of 7" not in one
