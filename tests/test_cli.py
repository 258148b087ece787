"""The command line: exit codes, where output goes, one sentence for bad input, nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_report import RESULTS, made_report, only

from cpbcg_ref import cli
from cpbcg_ref.checking import session
from cpbcg_ref.invariants import REGISTRY

COMMAND = [sys.executable, "-m", "cpbcg_ref.cli"]


@pytest.fixture
def run(capsys, monkeypatch):
    """run("check", ...) -> (exit code, stdout, stderr), as the installed command would."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.delenv("CPBCG_DEBUG", raising=False)

    def command(*args):
        with pytest.raises(SystemExit) as end:
            cli.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    yield command
    signal.signal(signal.SIGINT, before)
    os.environ.pop("CPBCG_DEBUG", None)


@pytest.fixture
def checks(monkeypatch):
    """checks(results) makes every check end with these; the options of each call are kept in `checks.calls`."""

    def ends_with(results, *, raising=None):
        def check(target, **options):
            ends_with.calls.append(options)
            if raising:
                raise raising
            return made_report(results=results)

        monkeypatch.setattr(session, "check", check)

    ends_with.calls = []
    return ends_with


@pytest.mark.parametrize(
    ("results", "lenient", "strict"),
    [
        ([("pass", "MUST"), ("skip", "MUST")], 0, 0),
        ([("fail", "SHOULD")], 0, 1),
        ([("fail", "MUST"), ("error", "MUST"), ("unwitnessed", "MUST")], 1, 1),
        ([("error", "SHOULD"), ("unwitnessed", "MUST")], 2, 2),
        ([("unwitnessed", "MUST"), ("pass", "MUST")], 3, 3),
        ([("unwitnessed", "SHOULD")], 0, 0),
    ],
)
def test_exit_codes(run, checks, tmp_path, results, lenient, strict):
    checks([*map(dataclass_with_known_id, only(*results), REGISTRY)])
    assert run("check", "--json", tmp_path / "x.json")[0] == lenient
    assert json.loads((tmp_path / "x.json").read_text())["summary"]["exit_code"] == lenient
    assert run("check", "--strict")[0] == strict


def dataclass_with_known_id(result, name):
    import dataclasses

    return dataclasses.replace(result, invariant=name)


def test_a_target_that_cannot_be_obtained_is_one_sentence_and_exit_code_2(run):
    code, out, err = run("check", "no-such-engine")
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown target 'no-such-engine': ")
    assert err.count("\n") == 1


def test_debugging_shows_the_traceback(run, monkeypatch):
    monkeypatch.setenv("CPBCG_DEBUG", "1")
    _, _, err = run("check", "no-such-engine")
    assert err.startswith("Traceback (most recent call last):")


def test_an_unexpected_exception_is_called_a_bug_without_a_traceback(run, checks):
    checks((), raising=RuntimeError("lost"))
    assert run("check") == (2, "", "error: RuntimeError: lost\nthis is a bug in cpbcg, CPBCG_DEBUG=1 shows where\n")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ["check", "--select", "capacity.no-overlow"],
            "no invariant is called 'capacity.no-overlow': did you mean capa",
        ),
        (["check", "--select", "layouts.*"], "no invariant is called 'layouts.*': "),
        (["check", "--select", "select.pure,"], "no invariant is called ''"),
        (["check", "--profile", "fast"], "'fast' is not one of 'dev', 'ci', 'nightly'"),
        (["check", "--seed", "-1"], "-1 is not in the range"),
        (["check", "--jobs", "0"], "0 is not in the range"),
        (["check", "--json", "-", "--junit", "-"], "--json and --junit cannot both go to stdout"),
        (["check", "--config", "no-such.toml"], "no-such.toml: cannot be read as TOML"),
        (["invariants", "delay.agre"], "did you mean delay.agree"),
        (["smoke"], "Missing argument 'TARGET'"),
        (["chekc"], "No such command 'chekc'"),
        (["explain", "--cp-size", "4", "--lengths", "9,x", "--capture", "8:2"], "'x' is not an integer"),
        (
            ["explain", "--cp-size", "4", "--lengths", "9,-1", "--capture", "8:2"],
            "lengths[1] is -1: a length is an int",
        ),
        (["explain", "--cp-size", "0", "--lengths", "9", "--capture", "8:2"], "cp_size is 0: "),
        (["explain", "--cp-size", "4", "--lengths", "9", "--capture", "8:2,8:4"], "none comes twice"),
        (["explain", "--cp-size", "4", "--lengths", "9", "--capture", "8"], "write BUCKET:ROWS,BUCKET:ROWS"),
        (["explain", "--cp-size", "4", "--lengths", "9", "--capture", "8:"], "'' is not an integer"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(run, args, sentence):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_globs_and_repeated_selections_are_put_together_in_the_registrys_order(run, checks):
    checks(())
    run("check", "--select", "replay.*,select.pure", "--select", "select.pure")
    assert checks.calls[0]["ids"] == ["select.pure", "replay.admitted-implies-runs", "replay.safe-fallback"]


def test_json_on_stdout_is_alone_there(run, checks):
    checks(RESULTS)
    code, out, _ = run("check", "--json", "-")
    assert code == 1
    assert json.loads(out)["target"] == {"engine": "sglang", "version": "0.5.17"}


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_file_that_cannot_be_written_stops_the_check_before_it_begins(run, checks, tmp_path, option):
    checks(RESULTS)
    for path in (tmp_path / "no" / "such" / "x", tmp_path):
        code, out, err = run("check", option, path)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: cannot write {path}: ")
    assert checks.calls == []


def test_a_file_is_replaced_as_a_whole_or_not_at_all(run, checks, tmp_path):
    (tmp_path / "x.json").write_text("old")
    checks((), raising=RuntimeError("lost"))
    run("check", "--json", tmp_path / "x.json")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x.json": "old"}
    checks(RESULTS)
    run("check", "--json", tmp_path / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert json.loads((tmp_path / "x.json").read_text())["summary"]["fail"] == 2


@pytest.mark.parametrize(("flag", "kinds"), [((), (1, 2, 3)), (("--strict",), (2, 2, 2))])
def test_junit_is_red_exactly_where_the_check_is(run, checks, tmp_path, flag, kinds):
    checks(RESULTS)
    run("check", "--junit", tmp_path / "x.xml", *flag)
    suite = ElementTree.parse(tmp_path / "x.xml").getroot()
    assert tuple(int(suite.get(name)) for name in ("failures", "errors", "skipped")) == kinds
    assert [len(suite.findall(f".//{name}")) for name in ("failure", "error", "skipped")] == list(kinds)
    assert len(suite.findall("testcase")) == int(suite.get("tests")) == len(RESULTS)
    assert "16 live rows on rank 0" in suite.find(".//failure").get("message")


def test_junit_has_no_character_that_xml_forbids(run, checks, tmp_path):
    import dataclasses

    checks([dataclasses.replace(RESULTS[3], message="a\x00b\x1b[31mc\ud800 <&>")])
    run("check", "--junit", tmp_path / "x.xml")
    problem = ElementTree.parse(tmp_path / "x.xml").getroot().find(".//error")
    assert problem.get("message") == "ab[31mc <&>"


SERVER = "[server]\ncp_size = 4\ncapture_num_tokens = [32, 48]\ncontext_length = 64\n"


def test_a_server_without_delayer_skips_what_is_asked_of_the_delayer(run, tmp_path):
    (tmp_path / "server.toml").write_text(SERVER)
    ids = "capacity.required,delay.agree"
    args = ("--select", ids, "--profile", "dev", "--config", tmp_path / "server.toml", "--jobs", 1)
    code, out, _ = run("check", *args)
    assert code == 0
    assert "SKIP delay.agree: the configuration has no [delayer]\n" in unwrapped(out)
    assert "can this server overflow? not found: capacity.required pass (" in out
    assert "can this server hang? unknown: delay.agree skip (the configuration has no [delayer])\n" in out


def unwrapped(text):
    return text.replace("\n    ", " ")


def test_a_selection_that_the_deployment_leaves_nothing_of_is_bad_usage(run, tmp_path):
    (tmp_path / "server.toml").write_text(SERVER)
    code, _, err = run("check", "--select", "delay.*", "--config", tmp_path / "server.toml")
    assert code == 2
    assert "nothing to check: " in err


def test_the_deployment_is_what_the_check_is_asked_about(run, checks, tmp_path):
    (tmp_path / "server.toml").write_text(SERVER)
    checks(())
    run("check", "--config", tmp_path / "server.toml")
    assert checks.calls[0]["deployment"].server.capture_num_tokens == (32, 48)


def test_the_reference_keeps_a_rule_and_says_so(run):
    code, out, err = run("check", "--select", "select.pure", "--profile", "dev", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "\nselect.pure  MUST   pass" in out
    assert "reference 0.1.0: 0 MUST violated, 1 pass\n" in out


def test_smoke_ends_with_2_if_the_adapter_is_broken(run, tmp_path):
    (tmp_path / "adapter.py").write_text(
        "from cpbcg_ref.engines.reference import Reference\n"
        "class Swapped(Reference):\n"
        "    def shard(self, *args, **options):\n"
        "        return super().shard(*args, **options)[::-1]\n"
    )
    code, out, _ = run("smoke", f"{tmp_path / 'adapter.py'}:Swapped")
    assert code == 2
    assert "\nbroken       layout         see below\n" in out
    assert "\nBROKEN layout: of payload 1001 to 1016 on 2 ranks shard gives [[1003, 1004, 1011, 1012, " in out
    assert run("smoke", "reference")[0] == 0


def test_invariants_describe_every_id(run):
    out = run("invariants")[1]
    assert [line.split()[0] for line in out.split("\n") if line and line[0] != " "] == list(REGISTRY)
    out = run("invariants", "capacity.*")[1]
    assert re.findall(r"^\S+", out, re.MULTILINE) == ["capacity.required", "capacity.no-overflow"]
    assert "capacity.no-overflow (MUST)\n    " in out
    assert "    asks: replay; bugs: sglang#33906\n" in out


def test_engines_list_the_pinned_releases(run):
    out = run("engines")[1]
    assert re.search(rf"^reference +{re.escape(version('cpbcg'))}$", out, re.MULTILINE)
    assert re.search(r"^sglang +\S+ +0.5.16 0.5.17 0.5.18 ", out, re.MULTILINE)


def test_a_reader_that_stops_reading_changes_no_verdict():
    process = subprocess.Popen([*COMMAND, "invariants"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize("group", [False, True], ids=["to the process alone", "to its whole group, as a terminal does"])
def test_ctrl_c_ends_with_130_one_line_and_no_children(group):
    command = [*COMMAND, "check", "--profile", "nightly", "--select", "layout.*,select.*", "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while len(workers := children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err.strip()) == (130, "", "interrupted")
    assert len(workers) == 2
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_help_and_version_need_none_of_the_slow_imports():
    program = "import sys; from cpbcg_ref import cli\ntry: cli.main(['check', '--help'])\nexcept SystemExit: pass\n"
    program += "print(sorted({'hypothesis', 'torch', 'rich'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.endswith("\n[]\n")


def test_what_a_deployment_excludes_is_unwitnessed_and_costs_no_exit_code(run, tmp_path):
    (tmp_path / "server.toml").write_text("[delayer]\ndp_size = 2\nmax_delay_passes = 30\nmax_running_requests = 64\n")
    args = ("--select", "delay.bounded-passes", "--profile", "dev", "--jobs", 1, "--json", "-")
    found = json.loads(run("check", *args, "--config", tmp_path / "server.toml")[1])
    (row,) = found["results"]
    assert (row["outcome"], found["summary"]["exit_code"]) == ("unwitnessed", 0)
    assert row["message"].startswith("never came up in ")
    assert "bound 0 or 1" in row["message"]
    assert found["deployment"][3]["answer"] == "not found"


@pytest.mark.parametrize("command", [["smoke", "reference"], ["engines"], ["invariants", "select.*"]])
def test_every_listing_is_json_too(run, command):
    code, out, _ = run(*command, "--json", "-")
    assert code == 0
    assert all(isinstance(row, dict) for row in json.loads(out))
