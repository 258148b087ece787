"""How fast the suite looks, on the reference: examples of a family, passes of the state machine, and where time goes.

The oracle must not dominate: of the CPU time of a family less than half goes to judging. Generation is what is left.
"""

import importlib.util
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.strategies import cases_for

ENGINE, SHARE = Reference(), 0.55  # of all time; what is over a half is noise
STEPS = 5000  # per second and core
MACHINE = Path(__file__).parents[1] / "properties" / "test_negotiation_machine.py"
ASKED = [name for name, family in FAMILIES.items() if not missing(ENGINE, family.capability)]
QUIET = {"database": None, "deadline": None, "phases": (Phase.generate,), "suppress_health_check": list(HealthCheck)}
now = time.process_time


class Spent:
    """Examples of one family, and CPU seconds: in all, in the engine with its adapter, in witnesses and checkers."""

    def __init__(self, family, *, examples):
        self.examples = self.passes = 0
        self.asking = self.judging = 0.0
        self.family = FAMILIES[family]
        self.parts = [part for one in REGISTRY.values() for part in one.parts if part.family == family]
        search = settings(max_examples=examples, **QUIET)(
            given(cases_for(family, ENGINE.contract))(lambda c: self.one(c))
        )
        began = now()
        seed(0)(search)()
        self.all = now() - began

    def one(self, case):
        began = now()
        try:
            seen = self.family.ask(ENGINE, case)
        except CaptureFailed:
            return
        asked = now()
        for part in self.parts:
            for met in part.witnesses.values():
                met(case, seen)
            part.check(case, seen, ENGINE.contract)
        self.examples, self.passes = self.examples + 1, self.passes + len(getattr(case, "passes", ()))
        self.asking, self.judging = self.asking + asked - began, self.judging + now() - asked


def apart(call, *args, **how):
    """On a stack of its own: below pytest's, CPython 3.11 maps and unmaps memory at each call."""
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(call, *args, **how).result()


@pytest.mark.parametrize("family", ASKED)
def test_the_oracle_does_not_dominate(figure, family):
    spent = apart(Spent, family, examples=300)
    judging, asking = spent.judging / spent.all, spent.asking / spent.all
    passes = f" ({spent.passes / spent.all:,.0f} passes)" if spent.passes else ""
    shares = f"{1 - judging - asking:.0%} generation, {asking:.0%} under test, {judging:.0%} oracle"
    text = f"{spent.examples / spent.all:,.0f} examples/s{passes}; {shares}"
    figure(f"family `{family}` on the reference", text, "oracle at most 50%")
    assert judging < SHARE, f"{family}: {shares}"


def machine():
    """The state machine of the properties."""
    spec = importlib.util.spec_from_file_location("negotiation_machine", MACHINE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.NegotiationMachine


def passes_per_second():
    steps = 0

    class Counted(machine()):
        engine = ENGINE

        def step(self, *how):
            nonlocal steps
            steps += 1
            super().step(*how)

    limits, began = settings(max_examples=60, stateful_step_count=25, **QUIET), now()
    run_state_machine_as_test(seed(0)(Counted), settings=limits)
    return steps / (now() - began)


def test_passes_of_the_state_machine(figure, pytestconfig):
    rate = max(apart(passes_per_second) for _ in range(5))
    name = "negotiation by the state machine, with generation and judging"
    figure(name, f"{rate:,.0f} steps/s per core", f"{STEPS:,}")
    assert rate >= STEPS or not pytestconfig.getoption("--store", False), f"{rate:,.0f} steps/s"
