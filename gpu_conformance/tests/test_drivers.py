"""Drivers compute the same; in lockstep too a rank that fails is named; an engine that raises is a finding."""

import dataclasses
import multiprocessing
import os
import re
import threading
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import cpbcg_ref
from cpbcg_ref.engines.reference import Reference, ReferenceServer
from cpbcg_ref.errors import InvalidInput
from gpu_conformance import collectives, processes, session, work
from gpu_conformance.failure import Failure
from gpu_conformance.graphs import Graph
from gpu_conformance.group import Inject, decide
from gpu_conformance.lockstep import lockstep
from gpu_conformance.model import AllGather, Doing
from gpu_conformance.plan import plan
from gpu_conformance.rank import Rank
from gpu_conformance.report import progress
from gpu_conformance.session import Asked, groups, serve, serve_all

here = pytest.mark.skipif(bool(processes.unavailable()), reason=f"not here: {processes.unavailable()}")
BOTH = pytest.mark.parametrize("driver", ["lockstep", pytest.param("gloo", marks=here)])


@pytest.fixture(autouse=True)
def one_thread():
    """As in every rank: a sum over two threads has other last bits, and a process that used two must not fork."""
    torch.set_num_threads(1)


def few(driver, *, cp_size=2, batches=9, **asked):
    """One group with the first of its batches."""
    one = groups(Asked(driver=driver, cp_sizes=(cp_size,), batches=batches, timeout_s=20.0, **asked))[0]
    return dataclasses.replace(one, offers=one.offers[:batches])


# gloo beside lockstep ------------------------------------------------------------------------------------------------


def checksums(group, started, rank):
    """Every batch replayed or computed: checksums of the rows, logits and cache of this rank."""
    captured, made = started.captured(rank), []
    member = Rank(cp_rank=rank, cp_size=group.server.cp_size, truth=group.model, slots=group.slots)
    yield from member.capture(dict(captured.requests), dict(captured.bucket_local_tokens))
    for number, offer in enumerate(group.offers):
        batch = plan(offer.requests, member.cp_size)
        bucket = decide(Reference(), started, batch, cp_rank=rank, number=number)
        replayed = member.replay(batch, bucket) if bucket else member.eager(batch, max(map(len, batch.rows)))
        out = yield from replayed
        made.append([zlib.crc32(part.contiguous().numpy().tobytes()) for part in (out.hidden, out.logits, out.cache)])
    return made


@here
@pytest.mark.parametrize("cp_size", [2, 3])
def test_gloo_computes_the_same_bits_as_lockstep(cp_size):
    group = few("gloo", cp_size=cp_size)
    member = partial(checksums, group, group.start(Reference()))
    in_step = lockstep([member(rank) for rank in range(cp_size)])
    assert processes.run(member, ranks=cp_size, timeout_s=20.0, encode=list) == in_step
    assert len({tuple(map(tuple, one)) for one in in_step}) == cp_size  # each rank has rows of its own


# ranks that part ways in lockstep ------------------------------------------------------------------------------------


def steps(*asked):
    yield Doing(what="the beginning")
    for what, rows in asked:
        yield AllGather(what=what, rows=torch.zeros(rows))


def blamed(*ranks):
    with pytest.raises(Failure) as failed:
        lockstep(ranks)
    return failed.value.rank, failed.value.kind, failed.value.last_operation


def test_the_rank_that_gathers_what_no_other_does_is_named():
    odd = (1, "parted ways", "all-gather of values, after the beginning")
    assert blamed(steps(("keys", 2)), steps(("values", 2)), steps(("keys", 2))) == odd


def test_the_rank_that_brings_other_rows_is_named():
    odd = (2, "parted ways", "all-gather of keys, after the beginning")
    assert blamed(steps(("keys", 2)), steps(("keys", 2)), steps(("keys", 3))) == odd


def test_the_rank_that_finishes_early_is_named():
    assert blamed(steps(("keys", 2)), steps()) == (1, "finished early", "the beginning")


def raises():
    yield Doing(what="the beginning")
    raise ValueError("its own fault")


def test_the_rank_that_raises_is_named_with_the_place():
    with pytest.raises(Failure) as failed:
        lockstep([steps(("keys", 2)), raises()])
    told = failed.value
    assert (told.rank, told.kind, told.last_operation) == (1, "raised", "the beginning")
    assert told.detail == "ValueError: its own fault"
    assert "in raises" in told.stacks[1]


# engines that raise --------------------------------------------------------------------------------------------------


class Wrong(Reference):
    """An engine whose server is `kind`."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def start(self, server):
        return self.kind(server, cpbcg_ref)


def refused():
    """What only the engine itself raises: a negative length."""
    return cpbcg_ref.required_local_tokens([-1], cp_size=2)


class RaisesOnOneRank(ReferenceServer):
    def can_run_graph(self, batch, cp_rank):
        return refused() if cp_rank == 1 else super().can_run_graph(batch, cp_rank)


class RaisesWhenSelecting(ReferenceServer):
    def select(self, batch, cp_rank):
        return refused()


class RaisesAtCapture(ReferenceServer):
    def captured(self, cp_rank):
        return refused() if cp_rank == 0 else super().captured(cp_rank)


class RaisesAtStart(ReferenceServer):
    def __init__(self, server, library):
        refused()


class OtherLadder(ReferenceServer):
    def captured(self, cp_rank):
        told = super().captured(cp_rank)
        return dataclasses.replace(told, bucket_local_tokens=told.bucket_local_tokens[cp_rank:])


DATA = "data.replay-equals-eager"


@BOTH
@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (RaisesOnOneRank, {DATA, "agree.mode"}),
        (RaisesWhenSelecting, {DATA}),
        (RaisesAtCapture, {DATA, "agree.collectives"}),
        (RaisesAtStart, {DATA}),
        (OtherLadder, {"agree.collectives"}),
    ],
)
def test_an_engine_that_raises_or_parts_ways_is_a_finding(driver, kind, broken):
    one = serve(few(driver), Wrong(kind))
    findings = [finding for seen in one.seen for finding in seen.findings]
    assert one.failure is None
    assert {finding.invariant for finding in findings} == broken
    assert DATA not in broken or any("the engine raised InvalidInput" in finding.sentence for finding in findings)


class BrokenAdapter(ReferenceServer):
    def can_run_graph(self, batch, cp_rank):
        if cp_rank == 1:
            raise KeyError("the adapter's own mistake")
        return super().can_run_graph(batch, cp_rank)


class BrokenStart(ReferenceServer):
    def __init__(self, server, library):
        raise KeyError("the adapter's own mistake")


@BOTH
@pytest.mark.parametrize(
    ("kind", "rank", "operation"),
    [(BrokenAdapter, 1, "batch 0: choosing a bucket"), (BrokenStart, 0, "starting the engine")],
)
def test_an_adapter_that_raises_is_a_failed_rank(driver, kind, rank, operation):
    failure = serve(few(driver), Wrong(kind)).failure
    assert (failure["rank"], failure["kind"], failure["last_operation"]) == (rank, "raised", operation)
    assert failure["detail"] == 'KeyError: "the adapter\'s own mistake"'


# injected ------------------------------------------------------------------------------------------------------------


@here
@pytest.mark.parametrize(("kind", "rank", "batch", "told"), [("kill", 1, 4, "killed"), ("raise", 0, 8, "raised")])
def test_an_injected_failure_is_named_with_its_batch(kind, rank, batch, told):
    failure = serve(few("gloo", cp_size=3, inject=Inject(kind=kind, rank=rank, batch=batch)), Reference()).failure
    blamed = (failure["rank"], failure["kind"], failure["last_operation"])
    assert blamed == (rank, told, f"batch {batch}: choosing a bucket")


@BOTH
@pytest.mark.parametrize("batch", [0, 4, 8])
@pytest.mark.parametrize(
    ("kind", "invariants"), [("bucket", {"agree.bucket", "agree.mode"}), ("skip", {"agree.collectives"})]
)
def test_ranks_that_part_ways_break_an_invariant_instead_of_hanging(driver, kind, invariants, batch):
    one = serve(few(driver, inject=Inject(kind=kind, rank=1, batch=batch)), Reference())
    broken = {finding.invariant for seen in one.seen for finding in seen.findings}
    assert one.failure is None
    assert broken
    assert broken <= invariants


# hanging anywhere ----------------------------------------------------------------------------------------------------


def sleeps_on_rank_1(function):
    """Ranks are processes: what is patched here knows its own by the name of its process."""

    def sleeping(*args, **options):
        if multiprocessing.current_process().name.endswith("rank 1"):
            time.sleep(100)
        return function(*args, **options)

    return sleeping


HANGS = {  # last operation -> what hangs
    "asking what was captured": (ReferenceServer, "captured"),
    "capturing bucket 96": (Graph, "capture"),
    "batch 0: reference": (work, "alone"),
    "batch 0: replay": (Rank, "replay"),
}


def hung(last):
    """The failure of a group whose rank 1 hangs there."""
    owner, name = HANGS[last]
    group = dataclasses.replace(few("gloo", workload=("gqa",), batches=1), timeout_s=4.0)
    with mock.patch.object(owner, name, sleeps_on_rank_1(getattr(owner, name))):
        return serve(group, Reference()).failure


@here
def test_a_rank_that_hangs_is_named_wherever_it_does():
    with ProcessPoolExecutor(len(HANGS), mp_context=get_context("fork")) as side_by_side:
        done = dict(zip(HANGS, side_by_side.map(hung, HANGS), strict=True))
    told = {last: (one["rank"], one["kind"], one["last_operation"]) for last, one in done.items()}
    assert told == {last: (1, "hanging", last) for last in HANGS}
    assert all("in sleeping" in one["stacks"][1] for one in done.values())


def test_no_thread_runs_while_workers_are_forked():
    """A forked process has whatever locks another thread held just then, for ever."""
    with progress() as tell:
        tell("0 of 1 groups done")
        assert [thread.name for thread in threading.enumerate() if "Refresh" in type(thread).__name__] == []


@BOTH
def test_what_each_group_is_doing_is_told_while_it_runs(driver, monkeypatch):
    monkeypatch.setattr(session, "PROGRESS_S", 0.01)
    told = []
    serve_all([few(driver, batches=3), few(driver, batches=2)], Reference(), progress=told.append)
    counts = [lines.splitlines()[0] for lines in told]
    assert {*counts} <= {f"{done} of 2 groups done" for done in (0, 1, 2)}
    assert counts == sorted(counts)
    doing = {line for lines in told for line in lines.splitlines()[1:]}
    # It is looked at now and then: a capture may be over between two looks, or told as what came before a collective.
    assert any(re.match(rf"{driver} cp 2, edges, smooth: .*(capturing bucket|batch) \d", line) for line in doing), doing
    assert told[-1] == "2 of 2 groups done"


# where ranks cannot be forked ----------------------------------------------------------------------------------------


@pytest.fixture(params=["darwin", "win32"])
def elsewhere(request, monkeypatch):
    """Another operating system, without what only Linux has."""
    monkeypatch.setattr(processes.sys, "platform", request.param)
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "fork")


@pytest.mark.usefixtures("elsewhere")
def test_processes_are_refused_where_they_cannot_be_watched():
    with pytest.raises(InvalidInput, match=r"driver gloo cannot run here: .* only Linux has: use --driver lockstep"):
        groups(Asked(driver="gloo"))


@pytest.mark.usefixtures("elsewhere")
def test_lockstep_runs_everywhere():
    (served,) = serve_all([few("lockstep", batches=1)], Reference(), progress=lambda *_: None)
    assert served.seen


@pytest.mark.usefixtures("elsewhere")
def test_auto_takes_what_runs_here():
    assert {group.driver for group in groups(Asked(batches=1))} == {"lockstep"}


# GPUs, as far as that can be seen without one ------------------------------------------------------------------------


def pid_of(group, engine, **told):
    return SimpleNamespace(seconds=float(os.getpid()), seen=(), failure=None)


@here
@pytest.mark.parametrize(("device", "processes_used"), [("cuda", {4}), ("cpu", {1, 2})])
def test_a_process_that_has_used_a_gpu_serves_no_second_group(device, processes_used, monkeypatch):
    monkeypatch.setattr(session, "serve", pid_of)
    monkeypatch.setattr(session, "cores", lambda: 2)
    made = [dataclasses.replace(few("lockstep", batches=1), device=device)] * 4
    served = serve_all(made, Reference(), progress=lambda *_: None)
    assert len({one.seconds for one in served}) in processes_used


@pytest.mark.parametrize(
    ("gpu", "backend", "device"), [(None, "gloo", None), (3, "cpu:gloo,cuda:nccl", torch.device("cuda", 3))]
)
def test_only_a_rank_with_a_gpu_of_its_own_touches_cuda_and_takes_it_before_it_joins(gpu, backend, device, monkeypatch):
    calls = mock.Mock()
    monkeypatch.setattr(torch.cuda, "device_count", calls.looked_for_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", calls.set_device)
    monkeypatch.setattr(dist, "init_process_group", calls.join)
    collectives.join(0, 2, "file:///none", timeout_s=1.0, gpu=gpu)
    *before, (last, _, how) = calls.mock_calls
    assert before == ([] if gpu is None else [mock.call.set_device(3)])
    assert (last, how["backend"], how.get("device_id")) == ("join", backend, device)


@here
@pytest.mark.parametrize(("driver", "gpus"), [("gloo", [None, None]), ("nccl", [0, 1])])
def test_each_rank_over_nccl_takes_the_gpu_of_its_number(driver, gpus, monkeypatch):
    monkeypatch.setattr(collectives, "join", lambda rank, *_, gpu=None, **told: told_gpu.append(gpu))
    monkeypatch.setattr(collectives, "drive", lambda *_: told_gpu)
    monkeypatch.setattr("gpu_conformance.group.asdict", list)
    monkeypatch.setattr("gpu_conformance.group.seen_of", lambda told: told)
    told_gpu = []  # each forked rank has its own
    group = dataclasses.replace(few("gloo", batches=1), driver=driver)
    assert group.serve(Reference()) == [[gpu] for gpu in gpus]
