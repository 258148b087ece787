"""A rank that dies, stands still, raises or parts ways is named in time, and nobody and nothing is left behind."""

import os
import signal
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import pytest
import torch

from gpu_conformance import processes
from gpu_conformance.failure import Failure
from gpu_conformance.model import AllGather, Doing

TIMEOUT_S, STEPS = 3.0, 5
JOINING, LAST = -1, STEPS - 1
pytestmark = pytest.mark.skipif(bool(processes.unavailable()), reason=f"not here: {processes.unavailable()}")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def loop():
    while True:
        pass


def sleep():
    time.sleep(60)


def fail():
    raise ValueError("its own fault")


MISFORTUNES = {"kill": kill, "stop": stop, "loop": loop, "sleep": sleep, "raise": fail}
MISFORTUNES |= {"exit 0": lambda: os._exit(0), "exit 3": lambda: os._exit(3), "abort": os.abort}


def member(befalls, rank):
    """A rank of few steps; befalls: (rank, step) -> misfortune."""
    torch.set_num_threads(1)
    for step in range(STEPS):
        yield Doing(what=f"step {step}")
        if misfortune := befalls.get((rank, step)):
            MISFORTUNES[misfortune]()
        total = yield AllGather(what="rows", rows=torch.tensor([[rank + 1]]))
    return int(total.sum())


def ran(work, ranks):
    """The results, or what is said of the failure; and the seconds that it took."""
    began = time.monotonic()
    try:
        told = processes.run(work, ranks=ranks, timeout_s=TIMEOUT_S, encode=int)
    except Failure as failure:
        told = vars(failure)
    return told, time.monotonic() - began


def befallen(ranks, befalls):
    """befalls: (rank, step, or JOINING) -> misfortune."""
    join = processes.collectives.join

    def joining(rank, *args, **options):
        if misfortune := befalls.get((rank, JOINING)):
            MISFORTUNES[misfortune]()
        join(rank, *args, **options)

    with mock.patch.object(processes.collectives, "join", joining):
        return ran(partial(member, befalls), ranks)


def named(told):
    return told["rank"], told["kind"], told["last_operation"]


def operation(step):
    return "joining the group" if step == JOINING else f"step {step}"


def left(before=frozenset()):
    """Living children of this process, and what is open in it."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {*map(int, listed), *(os.readlink(f"/proc/self/fd/{fd}") for fd in opened())} - before


def opened():
    return [fd for fd in os.listdir("/proc/self/fd") if "memfd:" in os.path.realpath(f"/proc/self/fd/{fd}")]


def new_in_shm(before):
    """Entries that stay; others' come and go."""
    deadline = time.monotonic() + 10
    while (new := set(os.listdir("/dev/shm")) - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return new


@pytest.fixture
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared, before = set(os.listdir("/dev/shm")), left()
    yield
    assert left(before) == set()
    assert list(tmp_path.iterdir()) == []
    assert new_in_shm(shared) == set()


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_healthy_group_gives_every_ranks_result(ranks):
    assert befallen(ranks, {})[0] == [sum(range(1, ranks + 1))] * ranks


DEATHS = [  # the first misfortune is the one to be named
    (2, {(0, 0): "kill"}, "killed", "signal 9, SIGKILL, as when memory runs out"),
    (3, {(1, 2): "kill"}, "killed", "signal 9"),
    (4, {(3, LAST): "kill"}, "killed", "signal 9"),
    (3, {(1, JOINING): "kill"}, "killed", "signal 9"),
    (4, {(0, 1): "raise"}, "raised", "ValueError: its own fault"),
    (3, {(2, LAST): "raise"}, "raised", "ValueError: its own fault"),
    (3, {(1, 0): "exit 0"}, "exited", "exit code 0, without a result"),
    (2, {(1, 2): "exit 3"}, "exited", "exit code 3, without a result"),
    (2, {(1, 1): "abort"}, "aborted", "signal 6, SIGABRT"),
    (4, {(1, 2): "kill", (2, 2): "raise"}, "killed", "rank 2 raised too"),
    (3, {(2, 1): "kill", (0, 1): "stop"}, "killed", "rank 0 stopped too"),
]


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(("ranks", "befalls", "kind", "detail"), DEATHS)
def test_a_rank_that_ends_is_named_at_once_with_its_last_operation(ranks, befalls, kind, detail):
    told, seconds = befallen(ranks, befalls)
    rank, step = next(iter(befalls))
    assert named(told) == (rank, kind, operation(step))
    assert detail in told["detail"]
    assert seconds < TIMEOUT_S + 5


STANDSTILLS = [
    (2, {(0, 0): "stop"}, "stopped"),
    (3, {(1, 2): "stop"}, "stopped"),
    (4, {(3, LAST): "stop"}, "stopped"),
    (3, {(1, JOINING): "stop"}, "stopped"),
    (3, {(2, JOINING): "loop"}, "looping"),
    (2, {(1, 0): "loop"}, "looping"),
    (3, {(0, LAST): "loop"}, "looping"),
    (2, {(1, 3): "sleep"}, "hanging"),
    (4, {(1, 1): "stop", (2, 1): "stop"}, "stopped"),
]


@pytest.mark.usefixtures("nothing_is_left")
def test_a_rank_that_stands_still_is_named_in_time_and_the_living_say_where_they_are():
    with ProcessPoolExecutor(len(STANDSTILLS), mp_context=get_context("fork")) as side_by_side:
        done = list(side_by_side.map(befallen, *zip(*[one[:2] for one in STANDSTILLS], strict=True)))
    for (ranks, befalls, kind), (told, seconds) in zip(STANDSTILLS, done, strict=True):
        rank, step = next(iter(befalls))
        assert named(told) == (rank, kind, operation(step))
        assert seconds < TIMEOUT_S + 5
        assert sorted(told["stacks"]) == list(range(ranks))
        where = {"stopped": "", "looping": "in loop", "hanging": "in sleep"}[kind]
        waiting = "in join" if step == JOINING else "in all_gather"
        for other, stack in told["stacks"].items():
            assert (where if (other, step) in befalls else waiting) in stack
            assert bool(stack) == (kind != "stopped" or (other, step) not in befalls)


def test_a_rank_that_raised_is_told_with_the_place():
    told, _ = befallen(2, {(0, 1): "raise"})
    assert "in fail" in told["stacks"][0].splitlines()[1]


def test_a_crash_in_native_code_leaves_its_stack():
    told, _ = befallen(2, {(0, 1): "abort"})
    assert "in member" in told["stacks"][0]


def early(rank):
    yield AllGather(what="rows", rows=torch.zeros(1))
    if rank != 1:
        yield AllGather(what="more rows", rows=torch.zeros(1))
    return 0


def test_a_rank_that_has_finished_while_others_wait_is_named():
    told, _ = ran(early, 3)
    assert (told["rank"], told["kind"], told["last_operation"]) == (1, "finished early", "all-gather of rows")


def test_a_result_that_is_not_json_is_the_ranks_failure():
    with pytest.raises(Failure) as failed:
        processes.run(partial(member, {}), ranks=2, timeout_s=TIMEOUT_S, encode=lambda result: {result})
    assert failed.value.kind == "raised"
    assert failed.value.detail.startswith("TypeError: Object of type set is not JSON serializable")


def garbled(rank):
    """The last that rank 1 does is to write half a result into what it shares with its parent."""
    yield AllGather(what="rows", rows=torch.zeros(1))
    if rank == 1:
        (file,) = [fd for fd in opened() if os.path.realpath(f"/proc/self/fd/{fd}").startswith("/memfd:told-1")]
        os.write(int(file), b'{"result": [1, ')
        os._exit(0)
    return 0


def test_a_result_that_cannot_be_read_is_none():
    told, _ = ran(garbled, 2)
    assert (told["rank"], told["kind"], told["detail"]) == (1, "exited", "exit code 0, without a result")
