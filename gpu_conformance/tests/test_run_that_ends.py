"""The ranks end with their run, however that ends, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_conformance import processes

pytestmark = pytest.mark.skipif(bool(processes.unavailable()), reason=f"not here: {processes.unavailable()}")


@contextmanager
def running(tmp_path):
    """A run whose rank 1 loops."""
    command = [sys.executable, "-m", "gpu_conformance", "--driver", "gloo", "--cp-size", "2", "--inject", "loop:1@2"]
    told = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": {**os.environ, "TMPDIR": str(tmp_path)}}
    run = subprocess.Popen([*command, "--timeout", "100"], start_new_session=True, text=True, **told)
    shared = set(os.listdir("/dev/shm"))
    try:
        wait_until(lambda: len(members(run.pid)) >= 4, 60)  # itself, a worker, two ranks
        yield run
        wait_until(lambda: not members(run.pid), 30)
    finally:
        run.kill()
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: set(os.listdir("/dev/shm")) <= shared, 10)  # what others put there comes and goes


@pytest.mark.parametrize(("sent", "code"), [("SIGKILL", -9), ("SIGTERM", -15), ("SIGINT", 130)])
def test_ranks_end_with_the_run_and_leave_nothing(sent, code, tmp_path):
    with running(tmp_path) as run:
        os.kill(run.pid, getattr(signal, sent))
        assert run.wait(30) == code


def test_ranks_end_with_the_process_that_watches_them(tmp_path):
    with running(tmp_path) as run:
        (worker, *_) = map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())
        os.kill(worker, signal.SIGKILL)
        assert run.wait(30) == 2
        assert run.stderr.read() == "error: a process that serves groups was killed, as happens when memory runs out\n"


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
