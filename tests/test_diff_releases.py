"""What upstream changed between two releases is what `cpbcg diff` finds."""

import pytest

from cpbcg_ref.checking import differing
from cpbcg_ref.checking.functions import FUNCTIONS, functions_like

CAPPED = (
    "PassesCase(config=DelayerConfig(dp_size=1, max_delay_passes=3, max_running_requests=8, max_delay_ms=500.0, "
    "queue_min_ratio=0.5, prefill_max_requests=4), passes=((RankReport(prefillable=True, running_batch=8, "
    "max_prefill_bs=1),), (RankReport(prefillable=True, running_batch=4, max_prefill_bs=1, waiting_queue_len=1),)))"
)


@pytest.fixture
def compared(release):
    """compared("0.5.18", "0.5.19", pattern) -> {function: how it compares}."""

    def diff(left, right, *patterns, profile="dev"):
        for version in (left, right):
            release(version)
        targets = (f"sglang=={version}" for version in (left, right))
        found = differing.diff(*targets, ids=functions_like(patterns or ["*"]), profile=profile, workers=1)
        return {one.function: one for one in found.results}

    return diff


@pytest.fixture
def nightly(request):
    if not request.config.getoption("--every-release"):
        pytest.skip("nightly: --every-release compares more releases")


def test_from_0_5_18_to_0_5_19_the_queue_target_is_no_longer_capped_by_sizes_seen_lately(compared):
    difference = compared("0.5.18", "0.5.19", "last-pass.verdict")["last-pass.verdict"].difference
    assert difference.places == (("pass 2, rank 0", "allow", "delay"),)
    assert difference.python == CAPPED


def test_from_0_5_21_to_0_5_22_the_timer_is_gathered(compared):
    difference = compared("0.5.21", "0.5.22", "skewed-passes.verdict")["skewed-passes.verdict"].difference
    assert difference.violates == (("delay.agree",), ())
    ((place, *answers),) = difference.places
    assert (place, answers) == ("pass 3, rank 1", ["delay", "allow"])
    clocks = [report["now_ms"] for report in difference.case["passes"][-1]]
    limit = difference.case["config"]["max_delay_ms"]
    assert [now >= limit for now in clocks] == [True, False]


def test_from_0_5_21_to_0_5_22_nothing_else_of_the_delayer_changed(nightly, compared):
    found = compared("0.5.21", "0.5.22", "passes.*", "last-pass.*", "attempts.*", profile="ci")
    assert {one.outcome for one in found.values()} == {"same"}


def test_from_0_5_17_to_0_5_18_admission_differs_although_one_has_no_selector(nightly, compared):
    found = compared("0.5.17", "0.5.18", "select.*", "replay.*", profile="ci")
    assert "it picks a bucket by its number of tokens alone" in found["select.select_replay_bucket"].message
    admission, selected = found["replay.can_run_graph"].difference, found["replay.select"].difference
    assert admission.violates == (("replay.safe-fallback",), ())
    assert selected.violates == (("capacity.no-overflow", "replay.admitted-implies-runs"), ())
    assert [batch["lengths"] for batch in selected.case["batches"]] == [(5, 5, 5)]


def test_a_release_does_not_differ_from_itself(nightly, compared):
    found = compared("0.5.23", "0.5.23", profile="ci")
    assert {name: one.message for name, one in found.items() if one.outcome not in ("same", "skip")} == {}
    assert {FUNCTIONS[name].family for name, one in found.items() if one.outcome == "skip"} == {"votes", "dispatch"}
    assert not any(one.unmet for one in found.values())
