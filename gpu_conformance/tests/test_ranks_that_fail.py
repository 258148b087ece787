"""A rank that dies, stops, loops, raises or parts ways is named, and nobody is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cpbcg_ref.engines.reference import Reference
from gpu_conformance.group import Inject
from gpu_conformance.session import Asked, groups, results, serve

TIMEOUT_S = 3.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are watched through /proc: Linux only")


def served(kind, *, cp_size=2, rank=1, batch=4):
    inject = Inject(kind=kind, rank=rank, batch=batch)
    (group,) = groups(Asked(driver="gloo", cp_sizes=(cp_size,), batches=6, inject=inject, timeout_s=TIMEOUT_S))
    return serve(group, Reference())


def children():
    """Living processes of this one."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


@pytest.fixture
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared, before = set(os.listdir("/dev/shm")), set(children())
    yield
    assert set(children()) <= before
    assert list(tmp_path.iterdir()) == []
    assert set(os.listdir("/dev/shm")) <= shared


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(
    ("kind", "told"), [("kill", "killed"), ("stop", "stopped"), ("loop", "looping"), ("raise", "raised")]
)
def test_the_rank_and_its_last_operation_are_named_in_time(kind, told):
    began = time.monotonic()
    failure = served(kind).failure
    assert (failure["rank"], failure["kind"]) == (1, told)
    assert failure["last_operation"] == "batch 4: choosing a bucket"
    assert time.monotonic() - began < TIMEOUT_S + 5 + 10  # and what ran before


@pytest.mark.usefixtures("nothing_is_left")
def test_the_living_say_where_they_are():
    stacks = served("stop", cp_size=3, rank=0).failure["stacks"]
    assert all("all_gather" in stacks[rank] for rank in (1, 2))


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(("kind", "invariant"), [("bucket", "agree.bucket"), ("skip", "agree.collectives")])
def test_ranks_that_part_ways_break_an_invariant_instead_of_hanging(kind, invariant):
    one = served(kind)
    assert one.failure is None
    assert {result.outcome for result in results([one]) if result.invariant == invariant} == {"fail"}


def test_ranks_die_with_their_parent():
    command = [sys.executable, "-m", "gpu_conformance", "--driver", "gloo", "--cp-size", "2", "--inject", "loop:1@2"]
    run = subprocess.Popen([*command, "--timeout", "60"], stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 40
    while len(members(run.pid)) < 4 and time.monotonic() < deadline:  # itself, a worker, two ranks
        time.sleep(0.2)
    assert len(members(run.pid)) >= 4
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    while members(run.pid) and time.monotonic() < deadline + 10:
        time.sleep(0.1)
    assert members(run.pid) == []


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
