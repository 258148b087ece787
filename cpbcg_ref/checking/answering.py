"""Put a case to an engine; in a worker process one that does not come back is interrupted, so that the run says so.

What interrupts is a signal to the Python that hangs. Code in C that never returns, and Windows, are out of its reach.
"""

import signal
import traceback
from itertools import takewhile
from typing import Any

from hypothesis.configuration import set_hypothesis_home_dir

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import executed

ANSWER_S = 60.0  # most that an engine may take for one case, in seconds; it takes milliseconds
CAN_INTERRUPT = hasattr(signal, "setitimer")


class Hangs(KeyboardInterrupt):
    """Raised in the engine: no answer of an adapter, and Hypothesis neither catches nor stores it."""


def begin(home: str | None = None) -> None:
    """In a new worker, whose timer and signals are ours. home: for what Hypothesis notes on the code around it."""
    set_hypothesis_home_dir(home)
    if CAN_INTERRUPT:
        signal.signal(signal.SIGALRM, interrupt)


def interrupt(*_: Any) -> None:
    raise Hangs(f"no answer within {ANSWER_S:g} s")


def ask(engine: Any, family: str, case: Any) -> Any:
    """The engine's answers to a case of this family. Raises what its `ask` raises; in a worker Hangs."""
    if not CAN_INTERRUPT or signal.getsignal(signal.SIGALRM) is not interrupt:
        return FAMILIES[family].ask(engine, case)
    signal.setitimer(signal.ITIMER_REAL, ANSWER_S, ANSWER_S)  # again and again: an engine may catch everything
    try:
        return FAMILIES[family].ask(engine, case)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def raised_at(problem: BaseException) -> traceback.FrameSummary:
    """Where the engine or its adapter was: the signal, and what records functions, are called from there."""
    engines = takewhile(lambda frame: frame.filename != executed.__file__, traceback.extract_tb(problem.__traceback__))
    return [frame for frame in engines if frame.filename != __file__][-1]
