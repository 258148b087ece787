"""`python -m gpu_conformance`: exit codes, JSON, what it refuses."""

import json
import os
import signal
import subprocess
import sys
from importlib import resources
from types import SimpleNamespace

import jsonschema
import pytest
import torch

from cpbcg_ref.cases import Server
from cpbcg_ref.cli import ending_well
from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.errors import InvalidInput, TargetError
from gpu_conformance import __main__, elastic
from gpu_conformance.__main__ import main
from gpu_conformance.scenarios import WORKLOADS, Asked, groups

QUICK = ["--driver", "lockstep", "--cp-size", "2", "--batches", "4", "--arithmetic", "exact"]
SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("schema.json").read_text())


@pytest.fixture
def run(capsys, monkeypatch):
    """The command in this process: starting Python and torch takes longer than most runs."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def ran(*args):
        with pytest.raises(SystemExit) as ended:
            ending_well(main, args, prog_name="python -m gpu_conformance")
        return SimpleNamespace(returncode=ended.value.code, **capsys.readouterr()._asdict())

    return ran


def outcomes(done):
    told = json.loads(done.out)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    return {result["invariant"]: result["outcome"] for result in told["results"]}


def test_the_reference_passes(run):
    done = run(*QUICK, "--json", "-")
    assert done.returncode == 0, done.err
    assert set(outcomes(done).values()) == {"pass"}
    told = json.loads(done.out)
    assert told["infrastructure"] is None
    assert [(group["workload"], group["arithmetic"]) for group in told["groups"]] == [("edges", "exact")]
    assert all(group[stage] > 0 for group in told["groups"] for stage in ("capture", "replay", "eager", "reference"))


@pytest.mark.parametrize("workload", ["gqa", "golden"])
def test_every_named_workload_passes_and_meets_what_it_is_there_for(run, workload):
    done = run("--workload", workload, "--arithmetic", "exact", "--json", "-")
    assert done.returncode == 0, done.err
    assert {(group["workload"], group["cp_size"]) for group in json.loads(done.out)["groups"]} == {(workload, 4)}


def test_a_selector_that_looks_at_tokens_alone_exits_1_with_the_overflow_and_a_command_that_shows_it_again(run):
    done = run(*QUICK, "--target", "fault:overflow")
    assert done.returncode == 1
    assert "FAIL capacity.no-overflow: lockstep cp 2, edges, exact, batch " in done.out
    command = done.out.partition("reproduce:\n    python -m gpu_conformance ")[2].splitlines()[0]
    assert (
        run(*command.split()).out.partition("FAIL")[2].partition("UNWIT")[0].splitlines()[:8]
        == (done.out.partition("FAIL")[2].partition("UNWIT")[0].splitlines()[:8])
    )


@pytest.mark.parametrize(("version", "outcome"), [("0.5.17", "fail"), ("0.5.23", "pass")])
def test_a_real_release_is_judged_by_what_its_own_selector_chooses(run, version, outcome):
    if not wheels.cached("sglang", version):
        pytest.skip(f"sglang {version} is not in the cache: `cpbcg check sglang=={version}` fetches it")
    done = run(*QUICK, "--target", f"sglang=={version}", "--json", "-")
    assert outcomes(done)["capacity.no-overflow"] == outcome
    assert done.returncode == (outcome == "fail")


def test_an_adapter_in_a_file_is_a_target(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from cpbcg_ref.engines.reference import Reference\n"
        "class Engine(Reference):\n    name = 'mine'\n    unavailable = {'replay': 'only a selector'}\n"
    )
    done = run(*QUICK, "--target", f"{tmp_path / 'mine.py'}:Engine", "--json", "-")
    assert done.returncode == 0, done.err
    assert json.loads(done.out)["target"]["engine"] == "mine"


def test_a_planted_defect_exits_1(run):
    assert run(*QUICK, "--plant", "mask").returncode == 1


def test_single_precision_is_compared_too(run):
    done = run(*QUICK[:-1], "both", "--dtype", "float32", "--json", "-")
    assert done.returncode == 0, done.out


def test_a_killed_rank_exits_2_and_is_named_in_the_json(run):
    done = run("--driver", "gloo", "--cp-size", "2", "--batches", "4", "--inject", "kill:1@2", "--json", "-")
    told = json.loads(done.out)
    assert done.returncode == 2
    blamed = {key: told["infrastructure"][key] for key in ("rank", "kind", "last_operation")}
    assert blamed == {"rank": 1, "kind": "killed", "last_operation": "batch 2: choosing a bucket"}
    assert "--inject kill:1@2" in told["infrastructure"]["reproduce"]
    outcomes(done)


def test_a_reader_that_stops_reading_changes_no_verdict():
    done = subprocess.run(
        f"{sys.executable} -m gpu_conformance {' '.join(QUICK)} | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--inject", "kill"], "write KIND:RANK@BATCH"),
        (["--inject", "kill:7@2", *QUICK], "has the ranks 0 to 1"),
        (["--inject", "skip:1@999", *QUICK], "the batches 0 to "),
        (["--inject", "stop:1@1", *QUICK], "in lockstep all ranks are one process"),
        (["--plant", "tokens-only-selection"], "did you mean token-only-selection?"),
        (["--plant", "zzz"], "there are token-only-selection, "),
        (["--cp-size", "two"], "'two' is not an integer"),
        (["--cp-size", "7"], "cp size 7: this engine supports 2, 3, 4"),
        (["--cp-size", "1"], "cp size 1: this engine supports 2, 3, 4"),
        (["--buckets", "32,"], "'' is not an integer"),
        (["--buckets", "5,32", "--cp-size", "4"], "bucket 5 cannot be captured with cp size 4"),
        (["--timeout", "nan"], "nan is no number of seconds"),
        (["--workload", "golden", "--buckets", "64", *QUICK], "no batch of the workload golden fits bucket 64"),
        (["--context-length", "3"], "bucket 32 cannot be captured with cp size 2"),
        (["--trace", "/nowhere"], "cannot be read"),
        (["--trace", "/nowhere", "--workload", "gqa"], "--trace is a workload of its own"),
        (["--json", "/nowhere/run.json"], "cannot write /nowhere/run.json"),
        (["--target", "nobody"], "unknown target 'nobody'"),
        (["--target", "fault:overflw"], "did you mean overflow"),
    ],
)
def test_what_cannot_be_run_exits_2_with_the_reason(run, args, told):
    done = run(*args)
    assert done.returncode == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="this machine can run nccl")
def test_a_driver_that_cannot_run_here_says_why(run):
    done = run("--driver", "nccl")
    assert (done.returncode, "driver nccl needs a GPU per rank: " in done.err) == (2, True)


@pytest.mark.parametrize("args", [[], ["--plant", "mask"], ["--inject", "kill:1@2"]])
def test_without_torch_it_says_what_to_install(run, args, monkeypatch):
    monkeypatch.setattr(__main__, "find_spec", lambda name: None)
    done = run(*args)
    assert done.returncode == 2
    assert done.err == "error: replaying needs torch, which is not installed: pip install 'cpbcg[torch]'\n"


@pytest.fixture
def torchrun(monkeypatch):
    """torchrun(4): as if it had started so many ranks, all on this machine."""

    def started(ranks):
        launched = {"RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(ranks)}
        monkeypatch.setattr(os, "environ", os.environ | launched)
        monkeypatch.setattr(elastic, "launched", lambda: True)

    return started


def test_ranks_that_torchrun_started_are_one_group(run, torchrun):
    torchrun(2)
    done = run("--cp-size", "4")
    assert (done.returncode, "torchrun started 2 ranks" in done.err) == (2, True)


@pytest.mark.parametrize("ranks", [1, 7])
def test_torchrun_too_starts_only_groups_that_the_engine_supports(run, torchrun, ranks):
    torchrun(ranks)
    done = run()
    assert (done.returncode, f"cp size {ranks}: this engine supports 2, 3, 4" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("driver", "gpus", "taken"),
    [("auto", 0, "gloo"), ("auto", 1, "gloo"), ("auto", 2, "nccl"), ("gloo", 2, "gloo"), ("nccl", 2, "nccl")],
)
def test_under_torchrun_nccl_is_taken_where_every_rank_has_a_gpu(torchrun, monkeypatch, driver, gpus, taken):
    torchrun(2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert {one.driver for one in groups(Asked(driver=driver, batches=1))} == {taken}


@pytest.mark.parametrize("gpus", [0, 1])
def test_under_torchrun_too_nccl_needs_a_gpu_per_rank(torchrun, monkeypatch, gpus):
    torchrun(2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(InvalidInput, match=f"a GPU per rank: 2 ranks on this machine, {gpus} GPUs"):
        groups(Asked(driver="nccl"))


def test_without_a_gpu_the_default_is_every_size_in_step_and_small_ones_over_gloo(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    made = {(one.driver, one.server.cp_size, one.workload) for one in groups(Asked(workload=WORKLOADS, batches=1))}
    lockstep = {("lockstep", size, "edges") for size in (2, 4, 8)}
    named = {("lockstep", 4, "gqa"), ("lockstep", 4, "golden")}
    assert made == lockstep | named | {("gloo", 2, "edges"), ("gloo", 4, "edges")}


def test_only_sizes_that_the_engine_declares_are_run():
    made = groups(Asked(driver="lockstep", batches=1), Contract(cp_sizes=(1, 2, 3)))
    assert {one.server.cp_size for one in made} == {2}
    with pytest.raises(InvalidInput, match="cp size 4: this engine supports 2, 3"):
        groups(Asked(driver="lockstep", cp_sizes=(4,), batches=1), Contract(cp_sizes=(1, 2, 3)))
    with pytest.raises(InvalidInput, match="no group to run: this engine supports the cp sizes 3"):
        groups(Asked(driver="lockstep", batches=1), Contract(cp_sizes=(1, 3)))


def test_an_engine_without_zigzag_graphs_has_nothing_to_replay():
    with pytest.raises(TargetError, match="captures no graphs for zigzag"):
        groups(Asked(batches=1), Contract(graph_strategies=()))


def test_an_engine_that_rounds_its_ladder_is_captured_as_rounded():
    (one,) = groups(
        Asked(driver="lockstep", cp_sizes=(4,), buckets=(31, 65), arithmetic="exact", batches=1), Contract(ladder=1)
    )
    assert one.server == Server(cp_size=4, capture_num_tokens=(32, 68), context_length=512)
