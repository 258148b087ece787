"""Ratios and figures are collected over a run, compared with the stored ones, and written down with --store."""

import os
import time
from functools import cache

import pytest
from pairs import PAIRS, paired, regressed
from table import Row, store, stored

from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import resolve

RELEASE = "0.5.23"
ROWS, NOTES = pytest.StashKey(), pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--store", action="store_true", help="write benchmarks/ratios.json and docs/benchmarks.md")


def pytest_configure(config):
    config.stash[ROWS], config.stash[NOTES] = [], []


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    for row in config.stash[ROWS]:
        terminalreporter.write_line(f"{row.name}: {row.figure}" + f" (promised: {row.promised})" * bool(row.promised))
    if config.getoption("--store", False) and exitstatus == 0:
        store(config.stash[ROWS], config.stash[NOTES], pairs=PAIRS)


@cache
def loaded():
    pytest.importorskip("torch", reason="the code of sglang needs torch: install the torch extra")
    if os.environ.get("CPBCG_FETCH") != "1" and not wheels.cached("sglang", RELEASE):
        pytest.skip(f"sglang=={RELEASE} is not in the cache; CPBCG_FETCH=1 downloads it")
    return resolve(f"sglang=={RELEASE}")


@pytest.fixture
def sglang():
    """The adapter of the release: what is timed is the release's own objects inside it."""
    return loaded()


@pytest.fixture
def their_rows(sglang):
    """their_rows(cp_size, strategy) -> the release's required_local_tokens, as its own selector calls it."""

    def function(cp_size, strategy="zigzag"):
        sglang.process.enter(cp_size, strategy, 0)
        kind = sglang.capacity.module.get_cp_bcg_input_type(sglang.process.base.get_cp_strategy_kind())
        return object.__new__(kind).required_local_tokens

    return function


@pytest.fixture
def figure(pytestconfig):
    """figure(name, text, promised=""): a line of the table that hangs on the machine."""
    return lambda *row, **more: pytestconfig.stash[ROWS].append(Row(*row, **more))


@pytest.fixture
def note(pytestconfig):
    """note(text): a paragraph below the table."""
    return pytestconfig.stash[NOTES].append


@pytest.fixture
def faster(benchmark, pytestconfig):
    """faster(name, ours=, theirs=, least=): times both in turn.

    scale: how much more of the work one call of ours does; unit: batches in one call of ours.
    """

    def compare(name, *, ours, theirs, least, scale=1.0, unit=1):
        pair = paired(theirs, ours)
        ratio = pair.ratio * scale
        benchmark.extra_info["ratio"] = round(ratio, 2)
        benchmark.pedantic(ours, rounds=5)
        text = f"{ratio:.3g} times, {1e6 * pair.fast / unit:.3g} µs each"
        row = Row(name, text, f"{least} times" if least > 1 else "never slower", ratio, least)
        pytestconfig.stash[ROWS].append(row)
        if pytestconfig.getoption("--store", False):
            assert ratio >= least, f"{name}: {ratio:.1f} times, promised are {least}"
        else:
            assert name in stored(), f"no ratio is stored for {name}: pytest benchmarks/ --store"
            assert not regressed(ratio, stored()[name]), f"{name}: {ratio:.1f} times, stored are {stored()[name]}"

    return compare


@pytest.fixture(autouse=True)
def cpu_time(request):
    """pytest-benchmark's own table counts CPU time too."""
    request.node.add_marker(pytest.mark.benchmark(timer=time.process_time))
