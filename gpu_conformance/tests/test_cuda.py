"""The same capture and replay on a GPU."""

import pytest
import torch

from cpbcg_ref.engines.reference import Reference
from gpu_conformance.session import Asked, groups, results, serve_all

pytestmark = pytest.mark.skipif(not torch.cuda.device_count(), reason="no CUDA device here: not run")


def served(*, driver="lockstep", **asked):
    """In processes of their own: this one forks ranks in other tests, and must not have used CUDA."""
    made = groups(Asked(driver=driver, batches=10, **asked))
    return results(serve_all(made, Reference(), progress=lambda *_: None))


def test_virtual_ranks_on_one_gpu_violate_nothing():
    assert {result.outcome for result in served(cp_sizes=(4,))} == {"pass"}


def test_the_overflow_is_caught_on_a_gpu():
    found = served(cp_sizes=(4,), plant="token-only-selection")
    assert "capacity.no-overflow" in {result.invariant for result in found if result.outcome == "fail"}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices here: not run")
def test_a_group_over_nccl_violates_nothing():
    assert {result.outcome for result in served(driver="nccl", cp_sizes=(2,))} == {"pass"}
