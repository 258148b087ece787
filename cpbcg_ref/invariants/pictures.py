"""The picture beside a violation: what every rank had and did, as plain text tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.answers import Loaded, Raised, Verdict
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import Turn, turns
from cpbcg_ref.oracles.buckets import verdicts

WIDEST = 44  # columns of a cell
PASS = ("pass", "rank", "prefillable", "usage", "running", "size", "waiting", "clock ms")


def picture(case: Any, seen: Any, contract: Contract) -> str:
    """Per rank: rows, buckets and why each was refused, or passes and verdicts; depends on the kind of case."""
    return "\n".join(PICTURES[type(case)](case, seen, contract))


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns as wide as their longest cell; below them each error once, in full."""
    head = list(dict.fromkeys(name for line in lines for name in line))
    cells = [head, *([shown(line.get(name, "")) for name in head] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    errors = dict.fromkeys(str(value) for line in lines for value in line.values() if isinstance(value, Raised))
    spaced = (zip(line, widths, strict=True) for line in cells)
    return [*("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in spaced), *errors]


def shown(value: Any) -> str:
    if isinstance(value, Raised):
        return value.kind
    if isinstance(value, Loaded):
        return f"bucket {value.bucket}, {shown(value.live_rows)} of {shown(value.captured_rows)} rows"
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def columns(line: str, *names: str) -> Callable[[Any, Any, Contract], list[str]]:
    """A table of these fields of answers and case: one line per rank or pass."""

    def of_case(case: Any, seen: Any, contract: Contract) -> list[str]:
        fields = {name: getattr(seen, name, None) or getattr(case, name, None) for name in names}
        first, number = int(line == "pass"), max(len(field) for field in fields.values() if isinstance(field, tuple))
        each = {name: field if isinstance(field, tuple) else (field,) * number for name, field in fields.items()}
        return table([{line: i + first} | {name: field[i] for name, field in each.items()} for i in range(number)])

    return of_case


def of_capture(case: cases.CaptureCase, seen: Any, contract: Contract) -> list[str]:
    lines: list[dict[str, Any]] = []
    for rank, one in enumerate(seen.ranks):
        rows = {} if isinstance(one, Raised) else dict(one.bucket_local_tokens)
        for bucket, lengths in [(None, one)] if isinstance(one, Raised) else one.requests:
            lines.append({"rank": rank, "bucket": bucket, "captured rows": rows.get(bucket), "requests": lengths})
    return table(lines)


def buckets(case: cases.SelectCase) -> list[str]:
    rows, told = dict(case.bucket_local_tokens), verdicts(case).items()
    return table([{"bucket": b, "captured rows": rows.get(b), "by the specification": why[0]} for b, why in told])


def of_select(case: cases.SelectCase, seen: Any, contract: Contract) -> list[str]:
    asked = f"{case.num_tokens} tokens, {case.required_local_tokens} rows per rank: answered {shown(seen.answer)}"
    return [asked, *buckets(case)]


def of_pair(case: cases.SelectPairCase, seen: Any, contract: Contract) -> list[str]:
    return [*of_select(case.base, seen.base, contract), "", *of_select(case.more, seen.more, contract)]


def of_replay(case: cases.ReplayCase, seen: Any, contract: Contract) -> list[str]:
    """Per batch, one line per rank and the buckets as rank 0 captured them."""
    lines: list[str] = []
    for ranks in turns(case, seen, contract):
        batch = ranks[0].batch
        lines += ["", f"lengths {','.join(map(str, batch.lengths)) or 'none'}: {batch.num_tokens} tokens"]
        lines += table([turn_line(turn) for turn in ranks])
        lines += [] if ranks[0].why_eager else buckets(ranks[0].question())
    return lines[1:]


def turn_line(turn: Turn) -> dict[str, Any]:
    live, need = (None, None) if turn.why_eager else (turn.live[turn.rank], turn.required)
    had = {"rank": turn.rank, "live": live, "padded": need, "captured": turn.rows, "active": turn.active}
    return had | {"admitted": turn.admitted, "selected": turn.selected, "replayed": turn.loaded}


def pass_lines(number: Any, reports: cases.Pass, answers: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for rank, (report, verdict) in enumerate(zip(reports, answers, strict=True)):
        said = {"verdict": verdict}
        if isinstance(verdict, Verdict):
            decision = "allow" if verdict.allow else "delay"
            said = {"verdict": decision, "reason": verdict.reason, "wait": verdict.wait_passes}
        yield dict(zip(PASS, (number, rank, *vars(report).values()), strict=True)) | said


def of_passes(case: cases.PassesCase, seen: Any, contract: Contract) -> list[str]:
    both = enumerate(zip(case.passes, seen.passes, strict=True), start=1)
    return table([line for number, one in both for line in pass_lines(number, *one)])


def of_last_pass(case: cases.LastPassCase, seen: Any, contract: Contract) -> list[str]:
    numbers = (*range(1, len(case.history) + 1), "last", "other last")
    answers = (*seen.history, seen.last, seen.other_last)
    passes = zip(numbers, (*case.history, case.last, case.other_last), answers, strict=True)
    return table([line for one in passes for line in pass_lines(*one)])


PICTURES: dict[type, Callable[[Any, Any, Contract], list[str]]] = {
    cases.LayoutCase: columns("rank", "logical", "required", "rows", "segments"),
    cases.BadLayoutCase: columns("rank", "active", "required", "rows"),
    cases.SelectCase: of_select,
    cases.SelectPairCase: of_pair,
    cases.CaptureCase: of_capture,
    cases.ReplayCase: of_replay,
    cases.PassesCase: of_passes,
    cases.LastPassCase: of_last_pass,
    cases.AttemptsCase: columns("pass", "attempts", "max_prefill_bs"),
    cases.VotesCase: columns("rank", "mid_chunk", "waiting", "prefillable"),
}
