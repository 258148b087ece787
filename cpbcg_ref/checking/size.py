"""How large a case is to a reader: what shrinking is measured by. Smaller numbers of the same things count the same."""

import dataclasses
from collections.abc import Callable
from typing import Any

from cpbcg_ref import cases


def size(case: Any) -> int:
    """Tokens, cached tokens and requests of batches; buckets of a ladder; reports, steps of ranks; passes of a window.

    >>> size(cases.LayoutCase(cp_size=4, batch=cases.Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0))))
    30
    """
    return SIZES[type(case)](case)


def order(case: Any) -> tuple[int, int, str]:
    """The key by which the least of several cases is kept, whichever was found first: equal only for equal cases.

    >>> one, two = (cases.BadLayoutCase(cp_size=2, lengths=lengths) for lengths in ((1, 2), (2, 1)))
    >>> size(one) == size(two), min(two, one, key=order) == one
    (True, True)
    """
    written = as_python(case)
    return size(case), len(written), written


def as_python(value: Any) -> str:
    """The shortest Python that rebuilds a case: fields at their default are left out.

    >>> from cpbcg_ref.cases import Batch
    >>> as_python((Batch(lengths=(9, 9), prefixes=(0, 0)),))
    '(Batch(lengths=(9, 9), prefixes=(0, 0)),)'
    """
    if dataclasses.is_dataclass(value):
        fields = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        told = [f"{field.name}={as_python(own)}" for field, own in fields if own != field.default]
        return f"{type(value).__name__}({', '.join(told)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(as_python, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def of_batch(batch: cases.Batch) -> int:
    return batch.num_tokens + sum(batch.prefixes) + len(batch.lengths)


def of_select(case: cases.SelectCase) -> int:
    return len(case.capture_num_tokens)


def of_step(step: cases.Step) -> int:
    return step.decodes + sum(step.prefills) + len(step.prefills) + 1


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
    cases.DispatchCase: lambda case: len(case.capture_num_tokens) + sum(map(of_step, case.ranks)),
    cases.VotesCase: lambda case: len(case.waiting),
}
