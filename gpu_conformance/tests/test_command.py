"""`python -m gpu_conformance`: exit codes, JSON, what it refuses."""

import json
import subprocess
import sys

import pytest

QUICK = ["--driver", "lockstep", "--cp-size", "2", "--batches", "4"]


def run(*args):
    command = [sys.executable, "-m", "gpu_conformance", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_reference_passes():
    done = run(*QUICK, "--json", "-")
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert {result["outcome"] for result in told["results"]} == {"pass"}
    assert told["infrastructure"] is None
    assert {group["arithmetic"] for group in told["groups"]} == {"smooth", "exact"}
    assert all(group["replay"] > 0 for group in told["groups"])


def test_a_selector_that_looks_at_tokens_alone_exits_1_with_the_overflow():
    done = run(*QUICK, "--batches", "20", "--target", "fault:overflow")
    assert done.returncode == 1
    assert "FAIL capacity.no-overflow" in done.stdout


def test_a_planted_defect_exits_1():
    assert run(*QUICK, "--plant", "mask").returncode == 1


def test_a_killed_rank_exits_2_and_is_named_in_the_json():
    done = run("--driver", "gloo", "--cp-size", "2", "--batches", "4", "--inject", "kill:1@2", "--json", "-")
    told = json.loads(done.stdout)
    assert done.returncode == 2
    blamed = {key: told["infrastructure"][key] for key in ("rank", "kind", "last_operation")}
    assert blamed == {"rank": 1, "kind": "killed", "last_operation": "batch 2: choosing a bucket"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--driver", "nccl"], "driver nccl needs a GPU per rank"),
        (["--inject", "kill"], "write KIND:RANK@BATCH"),
        (["--inject", "kill:7@2", *QUICK], "has the ranks 0 to 1"),
        (["--plant", "nothing"], "none of token-only-selection"),
        (["--cp-size", "two"], "is not an integer"),
        (["--trace", "/nowhere"], "cannot be read"),
        (["--target", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_run_exits_2_with_the_reason(args, told):
    import torch

    if "nccl" in args and torch.cuda.device_count() > 1:
        pytest.skip("this machine can run nccl")
    done = run(*args)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
