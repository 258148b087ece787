"""Under torchrun: rank 0 writes the JSON, and the rank that fails is named by those that live."""

import json
import os
import subprocess
import sys

import pytest

from gpu_conformance import processes

pytestmark = pytest.mark.skipif(bool(processes.unavailable()), reason=f"not here: {processes.unavailable()}")
LAUNCH = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--standalone",
    "-m",
    "gpu_conformance",
]


def launched(tmp_path, *args):
    """Exit code, what was said, the JSON or None."""
    written = tmp_path / "told.json"
    command = [*LAUNCH, "--driver", "gloo", "--workload", "gqa", "--timeout", "5", "--json", str(written), *args]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    return done.returncode, done.stdout, done.stderr, json.loads(written.read_text()) if written.exists() else None


def test_all_ranks_pass_and_rank_0_tells(tmp_path):
    code, table, _, told = launched(tmp_path)
    assert code == 0
    assert table.count("data.replay-equals-eager") == 1
    assert {result["outcome"] for result in told["results"]} == {"pass"}
    assert [(group["driver"], group["cp_size"]) for group in told["groups"]] == [("gloo", 2)]


def test_a_stopped_rank_is_named_asked_and_ended_by_its_neighbour(tmp_path):
    code, _, said, told = launched(tmp_path, "--inject", "stop:1@2")
    blamed = told["infrastructure"]
    assert (blamed["rank"], blamed["kind"], blamed["last_operation"]) == (1, "stopped", "batch 2: choosing a bucket")
    assert "INFRASTRUCTURE rank 1 stopped" in said
    assert "Unable to shutdown" not in said  # torchrun has not waited half a minute for it
    assert code == 1  # torchrun's, whatever its ranks ended with


def test_where_rank_0_is_gone_the_others_tell(tmp_path):
    code, _, said, told = launched(tmp_path, "--inject", "kill:0@2")
    assert "INFRASTRUCTURE rank 0 exited (torchrun tells its exit code)" in said
    assert "last operation: batch 2: choosing a bucket, says rank 1" in said
    assert (code, told) == (1, None)
