"""The ranks end with their run, however that ends, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_conformance import processes

pytestmark = pytest.mark.skipif(bool(processes.unavailable()), reason=f"not here: {processes.unavailable()}")


@pytest.mark.parametrize(("sent", "code"), [("SIGKILL", -9), ("SIGTERM", -15), ("SIGINT", 130)])
def test_ranks_end_with_the_run_and_leave_nothing(sent, code, tmp_path):
    shared = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "gpu_conformance", "--driver", "gloo", "--cp-size", "2", "--inject", "loop:1@2"]
    run = subprocess.Popen(
        [*command, "--timeout", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        wait_until(lambda: len(members(run.pid)) >= 4, 60)  # itself, a worker, two ranks
        os.kill(run.pid, getattr(signal, sent))
        assert run.wait(30) == code
        wait_until(lambda: not members(run.pid), 30)
    finally:
        run.kill()
    assert members(run.pid) == []
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: set(os.listdir("/dev/shm")) <= shared, 10)  # what others put there comes and goes


def wait_until(true, seconds):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert true()


def members(session):
    """Living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leader = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(leader) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found
