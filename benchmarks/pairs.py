"""Two ways to do one thing, timed in turn in one run: what the machine does besides slows both, the ratio stays."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

PAIRS = 101
REGRESSION = 2 / 3  # of the stored ratio: more than a third less is one
Clock = Callable[[], float]


@dataclass(frozen=True)
class Pair:
    """ratio: median over the pairs of slow / fast. slow, fast: seconds of the quickest call."""

    ratio: float
    slow: float
    fast: float


def seconds(call: Callable[[], object], clock: Clock) -> float:
    began = clock()
    call()
    return clock() - began


def paired(slow: Callable[[], object], fast: Callable[[], object], *, clock: Clock = time.process_time) -> Pair:
    """CPU time by default: waiting for a core costs nothing."""
    slow(), fast()
    gc.disable()
    try:
        taken = [(seconds(slow, clock), seconds(fast, clock)) for _ in range(PAIRS)]
    finally:
        gc.enable()
    of_slow, of_fast = zip(*taken, strict=True)
    return Pair(ratio=median(a / b for a, b in taken), slow=min(of_slow), fast=min(of_fast))


def regressed(ratio: float, stored: float) -> bool:
    """
    >>> regressed(9.9, stored=15), regressed(10.1, stored=15)
    (True, False)
    """
    return ratio < stored * REGRESSION
