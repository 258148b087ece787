"""Cases with one pass or one attempt fewer: Hypothesis shrinks the bytes that a case is read off, and none says so."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cpbcg_ref.cases import AttemptsCase, LastPassCase, PassesCase

SEQUENCES = {PassesCase: "passes", LastPassCase: "history", AttemptsCase: "attempts"}


def leaner(case: Any) -> Iterator[Any]:
    """Every case that lacks one of its passes or attempts, the earliest first; none for a case that is no sequence.

    >>> from cpbcg_ref.cases import Attempt
    >>> [len(case.attempts) for case in leaner(AttemptsCase(attempts=(Attempt(), Attempt(admitted=2))))]
    [1, 1]
    """
    name = SEQUENCES.get(type(case), "")
    whole = getattr(case, name, ())
    for i in range(len(whole)):
        if len(whole) > 1 or name == "history":
            yield replace(case, **{name: whole[:i] + whole[i + 1 :]})
