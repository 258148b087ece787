"""How large a case is to a reader: what shrinking is measured by. Smaller numbers of the same things count the same."""

from collections.abc import Callable
from typing import Any

from cpbcg_ref import cases


def size(case: Any) -> int:
    """Tokens, cached tokens and requests of batches; buckets of a ladder; reports of ranks; passes of a window.

    >>> size(cases.LayoutCase(cp_size=4, batch=cases.Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0))))
    30
    """
    return SIZES[type(case)](case)


def of_batch(batch: cases.Batch) -> int:
    return batch.num_tokens + sum(batch.prefixes) + len(batch.lengths)


def of_select(case: cases.SelectCase) -> int:
    return len(case.capture_num_tokens)


SIZES: dict[type, Callable[[Any], int]] = {
    cases.LayoutCase: lambda case: of_batch(case.batch),
    cases.BadLayoutCase: lambda case: sum(map(abs, case.lengths)) + len(case.lengths),
    cases.CaptureCase: lambda case: len(case.server.capture_num_tokens),
    cases.SelectCase: of_select,
    cases.SelectPairCase: lambda case: of_select(case.base) + of_select(case.more),
    cases.ReplayCase: lambda case: sum(map(of_batch, case.batches)),
    cases.PassesCase: lambda case: sum(map(len, case.passes)),
    cases.LastPassCase: lambda case: sum(map(len, (*case.history, case.last, case.other_last))),
    cases.AttemptsCase: lambda case: len(case.attempts),
    cases.VotesCase: lambda case: len(case.waiting),
}
