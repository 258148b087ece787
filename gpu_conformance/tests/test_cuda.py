"""The same capture and replay on a GPU."""

import pytest
import torch

from cpbcg_ref.engines.reference import Reference
from gpu_conformance.session import Asked, groups, results, serve

pytestmark = pytest.mark.skipif(not torch.cuda.device_count(), reason="no CUDA device here: not run")


def test_virtual_ranks_on_one_gpu_violate_nothing():
    served = [serve(group, Reference()) for group in groups(Asked(driver="lockstep", cp_sizes=(4,), batches=10))]
    assert {result.outcome for result in results(served)} == {"pass"}


def test_the_overflow_is_caught_on_a_gpu():
    asked = Asked(driver="lockstep", cp_sizes=(4,), batches=10, plant="token-only-selection")
    served = [serve(group, Reference()) for group in groups(asked)]
    assert "capacity.no-overflow" in {result.invariant for result in results(served) if result.outcome == "fail"}
