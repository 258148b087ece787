"""The rules of the benchmarks: what is a regression, how a pair is timed, and that stored ratios keep the promises."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RATIOS = json.loads((ROOT / "benchmarks" / "ratios.json").read_text())
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pairs = loaded("pairs")


class Clock:
    """Moved by the calls that it times."""

    now = 0.0

    def __call__(self):
        return self.now

    def takes(self, *seconds):
        """A function that takes these times in turn, the last one for ever."""
        left = list(seconds)

        def call():
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def test_a_pair_is_the_median_of_the_ratios_and_the_quickest_of_each():
    clock = Clock()
    pair = pairs.paired(clock.takes(9, 90, 7, 6), clock.takes(5, 2, 2, 3), clock=clock)
    assert (pair.ratio, pair.slow, pair.fast) == (2, 6, 2)


def test_one_slow_pair_changes_nothing():
    clock = Clock()
    pair = pairs.paired(clock.takes(6), clock.takes(3, 3, 3000, 3), clock=clock)
    assert pair.ratio == 2


@pytest.mark.parametrize(("ratio", "is_one"), [(30, False), (21, False), (20, False), (19.9, True)])
def test_more_than_a_third_less_than_stored_is_a_regression(ratio, is_one):
    assert pairs.regressed(ratio, stored=30) == is_one


@pytest.mark.parametrize("name", RATIOS)
def test_a_stored_ratio_keeps_its_promise(name):
    assert RATIOS[name]["ratio"] >= RATIOS[name]["promised"] >= 1


def test_what_was_promised_is_measured():
    promised = {(int(requests), one["promised"]) for name, one in RATIOS.items() for requests in requests_of(name)}
    assert promised >= {(4, 3), (16, 6), (64, 11), (256, 14)}
    at_once = [(one["promised"], name) for name, one in RATIOS.items() if name.startswith("`batched.")]
    assert {least for least, _ in at_once} == {25, 100}


def requests_of(name):
    return re.findall(r"^`required_local_tokens`, (\d+) requests, cp (?:4|8|16), over SGLang$", name)


@pytest.mark.parametrize("name", RATIOS)
def test_the_page_has_the_stored_ratio(name):
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    assert float(re.search(r"\| ([\d.e+]+) times", line)[1]) == pytest.approx(RATIOS[name]["ratio"], rel=0.01)
