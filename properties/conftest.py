"""`pytest properties/ [--target sglang==0.5.18] [-n 2]`: the registry's invariants on one engine, a test per id."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from cpbcg_ref.checking import profiles
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import TargetError

DEFAULTS = {"target": "reference", "profile": os.environ.get("CPBCG_PROFILE", "ci"), "seed": 0}
ENGINE = pytest.StashKey()


def pytest_addoption(parser):
    group = parser.getgroup("cpbcg properties")
    group.addoption("--target", default=DEFAULTS["target"], help="engine: reference, sglang==0.5.18, file.py:Class ...")
    group.addoption("--allow-unpinned", action="store_true", help="permit a release without a known sha256")
    group.addoption("--profile", default=DEFAULTS["profile"], choices=list(profiles.PROFILES), help="how hard to look")
    group.addoption(
        "--seed", default=DEFAULTS["seed"], type=int, help="of every random choice; reproduces the verdicts"
    )
    group.addoption("--strict-should", action="store_true", help="a violated SHOULD fails too")


def pytest_configure(config):
    profiles.register(option(config, "profile"))  # also under $CI, where Hypothesis would load its own
    try:  # here, so that a wrong target ends the run at once, and one download serves all workers
        config.stash[ENGINE] = resolve(option(config, "target"), allow_unpinned=option(config, "allow-unpinned"))
    except TargetError as problem:
        raise pytest.UsageError(str(problem)) from problem


def pytest_terminal_summary(terminalreporter, config):
    target, profile, seed = (option(config, name) for name in DEFAULTS)
    terminalreporter.write_line(f"properties of {target}: --profile {profile} --seed {seed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """All tests of a file on one worker: they share the answers that the engine gave to their family of cases."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def option(config, name):
    """The default where pytest was started above this folder and did not know the option in time."""
    return config.getoption(f"--{name}", DEFAULTS.get(name, False))


@pytest.fixture(scope="session")
def engine(pytestconfig):
    """The engine under test, loaded once per worker."""
    return pytestconfig.stash[ENGINE]


@pytest.fixture(scope="session")
def checker(engine, pytestconfig):
    target, profile, seed = (option(pytestconfig, name) for name in DEFAULTS)
    return Checker(engine=engine, target=target, profile=profile, seed=seed, recorded=0)


@pytest.fixture
def holds(checker, pytestconfig):
    """holds("layout.bijection"): passes, skips with the reason, or fails with sentence, picture and command."""

    def judge(invariant_id):
        # On a stack of its own: below pytest's, CPython 3.11 maps and unmaps memory at each call: 3 times slower.
        with ThreadPoolExecutor(1) as fresh:
            result = fresh.submit(checker.check, invariant_id).result()
        if result.outcome == "skip":
            pytest.skip(result.message)
        lenient = result.level == "SHOULD" and not option(pytestconfig, "strict-should")
        if lenient and result.outcome in ("fail", "unwitnessed"):
            # A plain UserWarning: xdist carries it by the name of its class.
            warnings.warn(f"advice: {sentence(result)} | {result.reproduce}", stacklevel=2)
        elif result.outcome != "pass":
            pytest.fail(report(result), pytrace=False)

    return judge


def sentence(result):
    return f"{result.invariant} {result.level} {result.outcome}: {result.message}"


def report(result):
    if not result.counterexample:
        return sentence(result)
    found = result.counterexample
    return "\n".join([sentence(result), found.picture, found.example, f"reproduce: {result.reproduce}"])


@pytest.fixture
def explore(engine, checker):
    """explore(Machine, "replay", steps=20): run a state machine on the engine under test, or skip."""

    def run(machine, capability, *, steps):
        reason = missing(engine, capability)
        if reason:
            pytest.skip(reason)
        bound = hypothesis.seed(checker.seed)(type(machine.__name__, (machine,), {"engine": engine}))
        limits = hypothesis.settings(
            max_examples=max(20, round(50 * profiles.PROFILES[checker.profile])),
            stateful_step_count=steps,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            report_multiple_bugs=False,
        )
        run_state_machine_as_test(bound, settings=limits)

    return run
