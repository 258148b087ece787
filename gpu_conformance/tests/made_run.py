"""A finished run made by hand: nothing is captured, nothing is asked."""

from types import SimpleNamespace

from gpu_conformance.checks import Finding
from gpu_conformance.report import Run
from gpu_conformance.scenarios import Asked, groups
from gpu_conformance.verdicts import IDS, Served
from gpu_conformance.work import Seen

SECONDS = {"capture": 0.25, "replay": 1.5, "eager": 2.0, "reference": 0.75}
OVERFLOW = Finding(invariant="capacity.no-overflow", sentence="rank 0 owns 9 rows, bucket 15 captured 8", batch=3)
STACK = "File a.py, line 3 in all_gather\n"
STOPPED = {"rank": 1, "kind": "stopped", "last_operation": "batch 4: choosing a bucket", "detail": "no progress"}
STOPPED |= {"stacks": {0: STACK, 1: ""}}


def asked(**told):
    return Asked(driver="lockstep", cp_sizes=(2,), arithmetic="exact", **told)


def served(*findings, batches=8, bucket=96, failure=None):
    """One group of two ranks that chose the same bucket for every batch, the last one eager."""
    (group,) = groups(asked(batches=2))
    chosen = [(number, bucket) for number in range(batches - 1)] + [(batches - 1, 0)]
    seen = Seen(
        cp_rank=0, findings=list(findings), judged=dict.fromkeys(IDS, batches), seconds=SECONDS,
        replayed=batches - 1, eager=1, replayed_tokens=300, padded=400, chosen=chosen, captured=[(96, 48), (32, 16)],
    )  # fmt: skip
    return Served(group=group, seconds=4.0, seen=() if failure else (seen,), failure=failure)


def run(*done, **told):
    engine = SimpleNamespace(name="sglang", version="0.5.17")
    return Run(target="sglang==0.5.17", engine=engine, asked=asked(batches=2, **told), done=done, seconds=5.0)
