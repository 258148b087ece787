"""`cpbcg sweep` from end to end: verdicts, resuming, Ctrl-C, a cluster, and errors that say what to do."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from cpbcg_ref import cli

SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("sweeps.schema.json").read_text())
SMALL = ("--what", "batches", "--cp-size", "2", "--requests", "2")
COMMAND = (sys.executable, "-m", "cpbcg_ref.cli", "sweep")


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """run("reference", ...) -> (exit code, stdout, stderr) of `cpbcg sweep`, with a state folder of its own."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path / "state"))

    def call(*args):
        with pytest.raises(SystemExit) as ended:
            cli.main(["sweep", *args])
        return (ended.value.code, *capsys.readouterr())

    return call


def test_a_sweep_that_finds_nothing_says_how_much_it_was(run):
    code, out, err = run(*SMALL, "-n", "1")
    assert (code, err) == (0, "")
    assert ["zigzag", "2", "2", "all", "up", "to", "7", "tokens,", "in", "order", "16"] in [
        line.split()[:11] for line in out.splitlines()
    ]
    assert "reference 0.1.0: 0 MUST violated, 54 batches" in out
    assert out.splitlines()[-1].startswith("6 of 6 parts in ")
    assert "layouts a second of processor time" in out
    assert "exit code 0" in out


def test_a_violation_is_shown_with_its_shortest_trace_and_exit_code_1(run):
    code, out, _ = run("fault:unbounded-all", "--what", "negotiation", "--ranks", "1", "--depth", "3")
    assert code == 1
    assert "FAIL delay.bounded-passes: pass 2: rank 0 was prefillable in 1 consecutive passes (bound 0)" in out
    assert "no trace of these domains that breaks it is shorter: 2 passes (slots, bound 0)" in out
    assert "    2     0     True" in out
    assert "PassesCase(config=DelayerConfig(dp_size=1, max_delay_passes=0" in out
    assert " no " in out  # more states are left than three passes reach


@pytest.mark.parametrize("target", ["reference", "fault:rows-averaged"])
def test_the_json_keeps_the_schema(run, target):
    code, out, _ = run(target, "--cp-size", "2", "--requests", "3", "--depth", "1", "--json", "-")
    found = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA, format_checker=None).validate(found)
    assert found["summary"]["exit_code"] == code == (target != "reference")
    assert found["summary"]["layouts"] == sum(one["batches"] for one in found["batches"]) == 166
    assert found["summary"]["transitions"] == sum(one["transitions"] for one in found["negotiation"]) > 0
    assert found["summary"]["must_violated"] == (["capacity.required"] if code else [])


def test_the_schema_is_a_schema_and_refuses_what_is_no_sweep():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"target": {"engine": "reference"}}, SCHEMA)


def test_a_file_that_is_named_is_kept_and_gone_on_from(run, tmp_path):
    journal = tmp_path / "sweep.jsonl"
    assert run(*SMALL, "--resume", str(journal))[0] == 0
    whole = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(whole[:4]))
    code, out, err = run(*SMALL, "--resume", str(journal))
    assert (code, err) == (0, f"3 of 6 parts were done before ({journal})\n")
    assert "54 batches" in out
    assert sorted(journal.read_text().splitlines(keepends=True)[4:]) != []
    assert run(*SMALL, "--resume", str(journal))[2].startswith("6 of 6 parts were done before")


def test_a_violation_found_before_an_interruption_still_counts(run, tmp_path):
    journal, more = tmp_path / "sweep.jsonl", ("--what", "batches", "--cp-size", "2", "--requests", "3")
    assert run("fault:rows-averaged", *more, "--resume", str(journal))[0] == 1
    code, out, _ = run("fault:rows-averaged", *more, "--resume", str(journal))
    assert code == 1
    assert "[5, 5, 5] on 2 ranks: required_local_tokens is 8, not 12" in out


def test_the_users_own_journal_is_gone_when_all_is_done(run, tmp_path):
    run(*SMALL)
    assert list((tmp_path / "state").rglob("*.jsonl")) == []


def test_ctrl_c_leaves_what_was_done_and_the_same_command_goes_on(tmp_path):
    environment = os.environ | {"CPBCG_STATE": str(tmp_path)}
    command = [*COMMAND, "--what", "batches", "--cp-size", "4"]
    process = subprocess.Popen(
        [*command, "-n", "1"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while lines(tmp_path) < 3 and time.monotonic() < deadline:  # the key and two parts
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 22 parts in" in out
    assert "exit code 130" in out
    (journal,) = tmp_path.rglob("*.jsonl")
    assert f"interrupted: the same command goes on from {journal}" in err
    done = lines(tmp_path) - 1
    assert 2 <= done < 22
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (0, f"{done} of 22 parts were done before ({journal})\n")
    assert not journal.exists()


def lines(folder):
    return sum(file.read_bytes().count(b"\n") for file in Path(folder).rglob("*.jsonl"))


def test_a_spoilt_journal_is_an_error_that_names_its_line(run, tmp_path):
    journal = tmp_path / "sweep.jsonl"
    journal.write_text("invariant,level\n")
    code, out, err = run(*SMALL, "--resume", str(journal))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {journal}, line 1: this is no line of a journal of a sweep")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--cp-size", "1"), "'1': write CP group sizes from 2 on, such as 2,4"),
        (("--cp-size", "2,,4"), "such as 2,4"),
        (("--requests", "0"), "0 is not in the range x>=1"),
        (("--ranks", "5"), "5 is not in the range 1<=x<=4"),
        (("--what", "everything"), "is not one of 'batches', 'negotiation', 'all'"),
        (("sglagn",), "unknown target 'sglagn'"),
        (("--json", "/nowhere/x.json"), "cannot write /nowhere/x.json"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(run, args, said):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err


def test_an_engine_that_can_be_asked_nothing_is_refused_and_one_that_can_be_asked_half_is_told(run, tmp_path):
    adapter = tmp_path / "adapter.py"
    adapter.write_text(
        "from cpbcg_ref.engines.contract import Contract\nfrom cpbcg_ref.engines.reference import Reference\n\n\n"
        "class Nothing:\n    name, version, contract, roots = 'nothing', '1', Contract(), ()\n\n\n"
        "class Half(Reference):\n    name, start_delayers = 'half', None\n"
    )
    code, _, err = run(f"{adapter}:Nothing")
    assert (code, "nothing 1 can be asked nothing of this sweep" in err) == (2, True)
    code, out, _ = run(f"{adapter}:Half", "--cp-size", "2", "--requests", "1")
    assert code == 0
    assert "SKIP negotiation: the adapter has no start_delayers" in out


def test_an_adapter_that_breaks_is_an_error_of_its_part_and_what_is_right_is_kept(run, tmp_path):
    adapter, journal = tmp_path / "adapter.py", tmp_path / "sweep.jsonl"
    adapter.write_text(
        "from cpbcg_ref.engines.reference import Reference\n\n\nclass Broken(Reference):\n    roots = ()\n\n"
        "    def required_local_tokens(self, lengths, *, cp_size, strategy, cp_rank):\n"
        "        return 1 // (len(lengths) - 2) * 0 + super().required_local_tokens(\n"
        "            lengths, cp_size=cp_size, strategy=strategy, cp_rank=cp_rank)\n"
    )
    code, out, _ = run(f"{adapter}:Broken", *SMALL, "--resume", str(journal))
    assert code == 2
    assert "ERROR lengths zigzag cp 2, 2 of 7, []: ZeroDivisionError" in out
    assert "2 of 7" not in journal.read_text()


def test_without_numpy_the_error_names_the_extra():
    code = "import sys; sys.modules['numpy'] = None; from cpbcg_ref.cli import main; main(['sweep'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: a sweep needs numpy: pip install 'cpbcg[sweep]'\n"


def test_without_dask_the_error_names_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = run(*SMALL, "--scheduler", "tcp://127.0.0.1:1")
    assert (code, err) == (2, "error: --scheduler needs Dask, distributed is missing: pip install 'cpbcg[dask]'\n")


def test_a_scheduler_that_does_not_answer_is_an_error(run, monkeypatch):
    pytest.importorskip("distributed", reason="pip install 'cpbcg[dask]'")
    monkeypatch.setattr("cpbcg_ref.sweeping.spread.CONNECT_S", 0.5)
    code, _, err = run(*SMALL, "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:1'" in err


def test_a_cluster_finds_what_this_machine_finds(run, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="pip install 'cpbcg[dask]'")
    more = ("fault:rows-averaged", "--cp-size", "2", "--requests", "3", "--depth", "1", "--json", "-")
    here = json.loads(run(*more)[1])
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, host="127.0.0.1", protocol="tcp://"
    ) as cluster:
        code, out, _ = run(*more, "--scheduler", cluster.scheduler_address)
    there = json.loads(out)
    assert (code, there["summary"]["workers"]) == (1, cluster.scheduler_address)
    assert there["violations"] == here["violations"]
    assert [one["batches"] for one in there["batches"]] == [one["batches"] for one in here["batches"]]
    assert [one["states"] for one in there["negotiation"]] == [one["states"] for one in here["negotiation"]]
