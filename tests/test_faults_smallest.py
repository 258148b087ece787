"""The smallest case that shows a seeded fault of layout, capture, selection or replay is as small as its entry says."""

import pytest
from small_cases import SMALL

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.size import size
from cpbcg_ref.faults import FAULTS
from cpbcg_ref.invariants import REGISTRY

KEYS = [key for key, fault in FAULTS.items() if REGISTRY[fault.expected[0]].parts[0].family in SMALL]
# How far to look, where one batch without prefixes on a ladder of one bucket cannot show the fault.
HOW = {
    "local-variant": {"prefixes": True},
    "prompt-length-judged": {"prefixes": True},
    "largest-bucket-replayed": {"buckets": 2},
    "rows-of-largest-bucket": {"buckets": 2},
    "local-bucket": {"buckets": 2},
    "overflow": {"shards": True},
    "rows-averaged": {"shards": True},
    "rows-cut-off": {"shards": True},
    "local-lookup": {"shards": True},
    "bucket-by-tokens-replayed": {"shards": True, "buckets": 2},
    "stale-live-rows": {"several": True, "buckets": 2},
    "bucket-kept": {"several": True, "buckets": 2},
    "bucket-of-the-batch-before": {"several": True, "buckets": 2},
    "choice-by-tokens-remembered": {"shards": True, "several": True, "alike": True},
}
LONG = ("bucket-by-tokens-replayed", "choice-by-tokens-remembered", "stale-live-rows", "bucket-kept")
COUNTED_FROM_ONE = ("capture", "select")  # a ladder has a bucket


def shown(engine, part, case):
    try:
        seen = FAMILIES[part.family].ask(engine, case)
    except CaptureFailed:
        return False
    return part.check(case, seen, engine.contract) is not None


def searched(key, *, most):
    """Size of the smallest case up to `most` that shows the fault, in the first part of its first id that can."""
    fault = FAULTS[key]
    engine = fault.engine
    for part in REGISTRY[fault.expected[0]].parts:
        how = HOW.get(key, {}) if part.family in ("layout", "replay") else {}
        for one in range(part.family in COUNTED_FROM_ONE, min(most, 2 if part.family == "select" else most) + 1):
            if any(shown(engine, part, case) for case in SMALL[part.family](one, engine.contract, **how)):
                return one
    return None


@pytest.mark.parametrize("key", KEYS)
def test_no_smaller_case_shows_the_fault(request, key):
    if key in LONG and not request.config.getoption("--every-release"):
        pytest.skip("takes seconds to a minute: asked for with --every-release")
    assert searched(key, most=FAULTS[key].smallest) == FAULTS[key].smallest


@pytest.mark.parametrize("family", SMALL)
def test_a_small_case_has_the_size_it_is_listed_under(family):
    contract = FAULTS["overflow"].engine.contract
    for one in (1, 2) if family in COUNTED_FROM_ONE else (3, 4):
        listed = list(SMALL[family](one, contract))
        assert {size(case) for case in listed} == {one}


def test_all_batches_of_three_tokens_are_listed():
    lengths = {
        case.batch.lengths for one in range(8) for case in SMALL["layout"](one, FAULTS["overflow"].engine.contract)
    }
    assert {(3,), (1, 2), (2, 1), (1, 1, 1)} <= lengths
