"""The search of the negotiation: every state of a small world, shortest traces, and the same verdicts as elsewhere."""

from dataclasses import replace
from itertools import product

import pytest

from cpbcg_ref import cases
from cpbcg_ref.answers import PassesSeen, Raised, Verdict
from cpbcg_ref.asking import run_passes
from cpbcg_ref.cases import DelayerConfig, PassesCase, RankReport
from cpbcg_ref.checking.single import violation
from cpbcg_ref.engines.reference import Hardened, Reference, ReferenceDelayers
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.sweeping import definitions, search
from cpbcg_ref.sweeping.domains import LIMIT_MS, Domain, domains
from cpbcg_ref.sweeping.monitors import Past, after, state
from cpbcg_ref.sweeping.scope import Search

SPACES = {  # domain: (states, transitions, passes of the longest trace) of the reference on two ranks
    "slots, bound 0": (4, 144, 3),
    "slots, bound 1": (4, 144, 3),
    "slots, bound 2": (41, 1_476, 6),
    "slots, bound 3": (120, 4_320, 7),
    "queue, bound 2": (82, 20_992, 6),
    "timers, bound 3": (352, 12_672, 7),
    "timers, bound 4": (884, 14_144, 8),
    "cap": (82, 16_072, 6),
    "watermark": (41, 1_476, 6),
    "everything": (82, 8_200, 6),
    "replicas": (17, 170, 7),
}
QUICK = ("slots, bound 0", "slots, bound 1", "slots, bound 2", "watermark", "replicas")
FRESH = Verdict(allow=True, reason="", wait_passes=0, episode_open=False, delayed_passes=0, free_pass_used=False)


def swept(engine, domain, *, ranks=2, depth=12):
    return search.sweep(engine, Search(domain=domain, ranks=ranks, depth=depth))


def musts(found):
    return {name: told["size"] for name, told in found.items() if REGISTRY[name].level == "MUST"}


@pytest.mark.parametrize("name", SPACES)
def test_the_reference_breaks_no_must_in_any_state(name, request):
    if name not in QUICK and not request.config.getoption("--every-release"):
        pytest.skip("25 s in all; --every-release runs it")
    told = swept(Reference(), name)
    assert (told["states"], told["transitions"], told["passes"]) == SPACES[name]
    assert told["complete"]
    assert not musts(told["violations"])


def test_every_domain_has_its_counts():
    assert list(domains(2)) == list(SPACES)


def test_three_ranks_have_more_states_and_break_no_must_either(request):
    if not request.config.getoption("--every-release"):
        pytest.skip("5 s; --every-release runs it")
    told = swept(Reference(), "slots, bound 2", ranks=3)
    assert (told["states"], told["transitions"], told["complete"]) == (129, 8_256, True)
    assert not musts(told["violations"])


@pytest.mark.parametrize("name", QUICK)
def test_the_hardened_delayer_breaks_no_should_either(name):
    assert not swept(Hardened(), name)["violations"]


def test_the_weaknesses_of_the_specified_policy_are_found_as_advice():
    found = [name for domain in QUICK for name in swept(Reference(), domain, depth=5)["violations"]]
    assert set(found) == {"delay.budget", "delay.no-idle-hold", "delay.own-slots", "delay.reachable-target"}


FOUND = [  # fault, domain, id, passes
    ("unbounded-all", "slots, bound 2", "delay.bounded-passes", 3),
    ("bound-1-delays", "slots, bound 1", "delay.bounded-passes", 1),
    ("slots-of-all-running", "slots, bound 2", "delay.justified", 2),
    ("own-watermark", "watermark", "delay.agree", 1),
    ("watermark-in-mixed-alone", "watermark", "delay.watermark", 2),
    ("free-pass-in-mixed", "slots, bound 2", "delay.skip-first", 1),
    ("timer-ignored", "timers, bound 3", "delay.bounded-time", 3),
    ("timer-restarts", "timers, bound 4", "delay.bounded-time", 4),
    ("local-clock", "timers, bound 3", "delay.agree", 2),
    ("queue-reversed", "replicas", "delay.monotone", 2),
    ("history-cap", "cap", "delay.target-capacity", 2),
    ("cleared-wait", "slots, bound 2", "delay.reason", 2),
    ("replica-limit-rounded-down", "replicas", "delay.justified", 2),
]


@pytest.mark.parametrize(("key", "domain", "name", "passes"), FOUND, ids=[row[0] for row in FOUND])
def test_a_wrong_delayer_is_found_by_a_shortest_trace(key, domain, name, passes):
    found = swept(resolve(f"fault:{key}"), domain, depth=passes)["violations"]
    assert found[name]["size"] == passes
    case = eval(found[name]["case"], vars(cases))
    assert violation(resolve(f"fault:{key}"), name, case) == found[name]["message"]
    assert violation(Reference(), name, case) is None


def test_it_is_a_shortest_no_trace_of_fewer_passes_breaks_it():
    engine, domain = resolve("fault:unbounded-all"), domains(2)["slots, bound 2"]
    parts = REGISTRY["delay.bounded-passes"].parts
    for passes in product(domain.passes, repeat=2):
        case = PassesCase(config=domain.config, passes=passes)
        seen = PassesSeen(passes=run_passes(engine, domain.config, passes))
        assert not any(part.check(case, seen, engine.contract) for part in parts)


EVERY_TRACE = ("bound-one-late", "count-restarts-in-mixed", "wait-told-again", "free-pass-after-nobody", "no-reason")


@pytest.mark.parametrize("key", EVERY_TRACE)
def test_states_that_are_taken_for_one_hide_nothing(key):
    """On one rank every trace of four passes is walked, without merging any."""
    engine, domain = resolve(f"fault:{key}"), domains(1)["slots, bound 2"]
    asked, found = search.checks(PassesCase, engine.contract), set()
    for passes in product(domain.passes, repeat=4):
        case = PassesCase(config=domain.config, passes=passes)
        seen = PassesSeen(passes=run_passes(engine, domain.config, passes))
        found |= {name for name, parts in asked.items() for part in parts if part.check(case, seen, engine.contract)}
    assert found
    merged = swept(engine, "slots, bound 2", ranks=1, depth=4)["violations"]
    assert {name for name in merged if name in asked} == found


@pytest.mark.parametrize("key", ["own-watermark", "watermark-reversed", "table-changed", "free-pass-by-watermark"])
def test_checkers_and_definitions_find_the_same(key, monkeypatch):
    alone = {}
    with monkeypatch.context() as patched:
        patched.setattr(search, "broken", lambda turn, names: [])
        alone["checkers"] = musts(swept(resolve(f"fault:{key}"), "watermark", depth=3)["violations"])
    with monkeypatch.context() as patched:
        patched.setattr(search.Walk, "check", lambda *_: None)
        alone["definitions"] = musts(swept(resolve(f"fault:{key}"), "watermark", depth=3)["violations"])
    told = {how: {name: found.get(name) for name in definitions.DEFINITIONS} for how, found in alone.items()}
    assert told["checkers"] == told["definitions"]
    assert any(told["checkers"].values())


@pytest.mark.parametrize("key", ["bound-0-unset", "unbounded-all"])
def test_an_overrun_bound_is_no_wrong_reason(key):
    assert set(musts(swept(resolve(f"fault:{key}"), "slots, bound 0", depth=4)["violations"])) == {
        "delay.bounded-passes"
    }


def test_a_definition_that_a_checker_misses_is_told(monkeypatch):
    monkeypatch.setattr(search.Walk, "check", lambda *_: None)
    found = swept(resolve("fault:watermark-reversed"), "watermark", depth=1)["violations"]
    assert found["delay.watermark"]["message"] == "pass 1 breaks it by definition"


def test_a_rank_that_raises_is_told_and_its_trace_ends_there():
    class Delayers(ReferenceDelayers):
        def step(self, reports):
            raised = Raised("ValueError", "no", "delayer.py:1")
            return [
                raised if report.running_batch == 4 else one
                for report, one in zip(reports, super().step(reports), strict=True)
            ]

    engine = type("Raises", (Reference,), {"delayers": Delayers})()
    told = swept(engine, "slots, bound 0")
    assert told["violations"]["delay.agree"]["message"] == "pass 1: rank 0 raised ValueError: no (delayer.py:1)"
    assert told["complete"]


def test_a_depth_that_is_too_small_is_told():
    told = swept(Reference(), "slots, bound 2", depth=2)
    assert (told["complete"], told["passes"]) == (False, 2)


def test_every_rank_votes_and_its_clock_moves_in_all_ways():
    can = domains(2)["timers, bound 3"].passes
    assert {tuple((report.prefillable, report.now_ms) for report in one) for one in can} == set(
        product(product((False, True), (0.0, LIMIT_MS)), repeat=2)
    )


def test_three_ranks_are_asked_fewer_reports():
    few = domains(3)["queue, bound 2"]
    assert [(report.prefillable, report.now_ms) for report in few.reports].count((True, LIMIT_MS)) == 3
    assert len(few.passes) == 8**3


def test_without_dp_attention_a_replica_is_alone():
    told = domains(3)["replicas"]
    assert (told.ranks, told.config.dp_size, len(told.passes)) == (1, 3, 8)


WAITS = RankReport(prefillable=True, now_ms=5.0)
DELAY = replace(FRESH, allow=False, reason="delay", episode_open=True, delayed_passes=1)


def test_what_is_left_of_the_past_is_counted_by_hand():
    one = after(Past(), WAITS, DELAY, nobody=False, bound=3)
    assert one == Past(held=1, delays=1, since=1, kept=1, started=5.0)
    empty = after(one, replace(WAITS, prefillable=False), FRESH, nobody=True, bound=3)
    assert empty == Past(held=0, delays=1, since=1, kept=1, empty=True, between=True)
    again = after(empty, replace(WAITS, now_ms=9.0), DELAY, nobody=False, bound=3)
    assert again == Past(held=1, delays=2, since=2, kept=2, empty=True, between=True, started=9.0)
    assert after(again, WAITS, replace(FRESH, reason="no_wait"), nobody=False, bound=3) == Past()


def test_counts_stop_at_the_bound():
    past = Past()
    for _ in range(5):
        past = after(past, WAITS, DELAY, nobody=False, bound=3)
    assert past == Past(held=3, delays=3, since=3, kept=3, started=5.0)


def test_whatever_a_rank_carries_and_whatever_is_counted_tells_states_apart():
    def key(past=None, **carried):
        return state([replace(DELAY, **carried)], [replace(Past(started=0.0), **past or {})], [50.0], limit=100.0)

    counted = [{"held": 1}, {"delays": 1}, {"since": 1}, {"kept": 1}, {"empty": True}, {"between": True}]
    carried = [{"episode_open": False}, {"delayed_passes": 2}, {"free_pass_used": True}]
    apart = [key(), *(key(past) for past in counted), *(key(**one) for one in carried)]
    assert len(set(apart)) == 1 + len(counted) + len(carried)
    assert key(reason="", wait_passes=7) == key()  # told once, not carried on


def test_a_trace_on_which_clocks_stood_apart_is_not_taken_for_one_on_which_they_did_not():
    walk = search.Walk(engine=Reference(), domain=domains(2)["timers, bound 3"])
    passes = [(WAITS, WAITS), (WAITS, replace(WAITS, now_ms=6.0))]
    nodes = [search.Node(passes=(one,), answers=((FRESH, FRESH),), past=(Past(), Past())) for one in passes]
    assert walk.state_of(nodes[0]) != walk.state_of(nodes[1])


def test_a_start_counts_only_by_whether_the_limit_has_passed():
    def key(started, now):
        return state([DELAY], [Past(held=1, started=started)], [now], limit=100.0)

    assert key(0.0, 99.0) == key(5.0, 6.0) != key(0.0, 100.0) == key(1.0, 900.0)


def test_equal_clocks_are_judged_by_all_ids_and_skewed_ones_by_those_on_skewed_passes():
    engine = resolve("fault:local-clock")
    found = swept(engine, "timers, bound 3", depth=3)["violations"]
    assert set(musts(found)) == {"delay.agree"}


RELEASES = [
    ("0.5.16", "slots, bound 2", 3, {"delay.bounded-passes": 3}),
    ("0.5.18", "cap", 2, {"delay.agree": 2, "delay.target-capacity": 2}),
    ("0.5.21", "timers, bound 3", 3, {"delay.agree": 2}),
    ("0.5.23", "slots, bound 2", 3, {}),
]


@pytest.mark.parametrize(("version", "domain", "depth", "found"), RELEASES, ids=[row[0] for row in RELEASES])
def test_a_release_breaks_what_its_findings_say(release, version, domain, depth, found):
    assert musts(swept(release(version), domain, depth=depth)["violations"]) == found


def test_the_newest_release_has_as_many_states_as_the_reference(release, request):
    if not request.config.getoption("--every-release"):
        pytest.skip("2 s; --every-release runs it")
    told = swept(release("0.5.23"), "slots, bound 2")
    assert (told["states"], told["transitions"], told["passes"]) == SPACES["slots, bound 2"]
    assert told["complete"]


def test_a_domain_is_of_one_gather():
    config = DelayerConfig(dp_size=2, max_delay_passes=1, max_running_requests=1)
    assert Domain(config=config, reports=(WAITS,)).passes == [(WAITS, WAITS)]
