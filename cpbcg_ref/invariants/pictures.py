"""The picture beside a violation: what every rank had and did, as plain text tables. Two engines stand side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.answers import Graph, Loaded, Raised, Verdict
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import Turn, turns
from cpbcg_ref.oracles.buckets import verdicts
from cpbcg_ref.oracles.graphs import refusals, tokens

WIDEST = 44  # columns of a cell
Line = Mapping[str, Any]  # of a table: cells by column
Block = str | list[dict[str, Any]]  # a line of text, or the lines of a table
PASS = ("pass", "rank", "prefillable", "usage", "running", "size", "waiting", "clock ms")


def picture(case: Any, seen: Any, contract: Contract) -> str:
    """Per rank: rows, buckets and why each was refused, or passes and verdicts; depends on the kind of case."""
    return "\n".join(line for block in blocks(case, seen, contract) for line in drawn(block))


def blocks(case: Any, seen: Any, contract: Contract) -> list[Block]:
    return PICTURES[type(case)](case, seen, contract)


def drawn(block: Block) -> list[str]:
    return [block] if isinstance(block, str) else table(block)


def beside(case: Any, seen: Sequence[Any], contracts: Sequence[Contract], names: Sequence[str]) -> str:
    """One picture of what two engines answered: a column in which they differ is there for both of them."""
    lines: list[str] = []
    for one, other in zip_longest(*(blocks(case, *each) for each in zip(seen, contracts, strict=True)), fillvalue=""):
        if one == other:
            lines += drawn(one)
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            lines += table(side_by_side(one, other, names))
        else:
            lines += [line for name, own in zip(names, (one, other), strict=True) for line in (f"{name}:", *drawn(own))]
    return "\n".join(lines)


def side_by_side(one: Sequence[Line], other: Sequence[Line], names: Sequence[str]) -> list[dict[str, Any]]:
    """The same table of two engines as one."""
    merged: list[dict[str, Any]] = [{} for _ in one]
    for column in dict.fromkeys(name for line in (*one, *other) for name in line):
        cells = [[line.get(column, "") for line in own] for own in (one, other)]
        alike = [*map(shown, cells[0])] == [*map(shown, cells[1])]
        both = [column] if alike else [f"{column} {name}" for name in names]
        for head, own in zip(both, cells, strict=False):
            for line, cell in zip(merged, own, strict=True):
                line[head] = cell
    return merged


def table(lines: Sequence[Line]) -> list[str]:
    """Columns as wide as their longest cell; below them each error once, in full."""
    head = list(dict.fromkeys(name for line in lines for name in line))
    cells = [head, *([shown(line.get(name, "")) for name in head] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    raised = (value for line in lines for value in line.values() if isinstance(value, Raised))
    errors = dict.fromkeys(printable(str(value)) for value in raised)
    spaced = (zip(line, widths, strict=True) for line in cells)
    return [*("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in spaced), *errors]


def printable(text: str) -> str:
    """What an engine says, on one line and without a character that a terminal obeys.

    >>> print(printable("a\\nb"))
    a\\nb
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def shown(value: Any) -> str:
    if isinstance(value, Raised):
        return printable(value.kind)
    if isinstance(value, Loaded):
        return f"bucket {value.bucket}, {shown(value.live_rows)} of {shown(value.captured_rows)} rows"
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else printable(str(value))
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def columns(line: str, *names: str) -> Callable[[Any, Any, Contract], list[Block]]:
    """A table of these fields of answers and case: one line per rank or pass."""

    def of_case(case: Any, seen: Any, contract: Contract) -> list[Block]:
        fields = {name: getattr(seen, name, None) or getattr(case, name, None) for name in names}
        counts = [len(field) for field in fields.values() if isinstance(field, tuple)]
        first, number = int(line == "pass"), max(counts, default=getattr(case, "cp_size", 1))
        each = {name: field if isinstance(field, tuple) else (field,) * number for name, field in fields.items()}
        return [[{line: i + first} | {name: field[i] for name, field in each.items()} for i in range(number)]]

    return of_case


def of_layout(case: cases.LayoutCase, seen: Any, contract: Contract) -> list[Block]:
    """What the engine has a method for."""
    names = [name for name in ("logical", "required", "rows", "lengths", "segments") if getattr(seen, name) is not None]
    return columns("rank", *names)(case, seen, contract)


def of_capture(case: cases.CaptureCase, seen: Any, contract: Contract) -> list[Block]:
    lines: list[dict[str, Any]] = []
    for rank, one in enumerate(seen.ranks):
        rows = {} if isinstance(one, Raised) else dict(one.bucket_local_tokens)
        for bucket, lengths in [(None, one)] if isinstance(one, Raised) else one.requests:
            lines.append({"rank": rank, "bucket": bucket, "captured rows": rows.get(bucket), "requests": lengths})
    return [lines]


def buckets(case: cases.SelectCase) -> Block:
    rows, told = dict(case.bucket_local_tokens), verdicts(case).items()
    return [{"bucket": b, "captured rows": rows.get(b), "by the specification": why[0]} for b, why in told]


def of_select(case: cases.SelectCase, seen: Any, contract: Contract) -> list[Block]:
    asked = f"{case.num_tokens} tokens, {case.required_local_tokens} rows per rank: answered {shown(seen.answer)}"
    return [asked, buckets(case)]


def of_pair(case: cases.SelectPairCase, seen: Any, contract: Contract) -> list[Block]:
    return [*of_select(case.base, seen.base, contract), "", *of_select(case.more, seen.more, contract)]


def of_replay(case: cases.ReplayCase, seen: Any, contract: Contract) -> list[Block]:
    """Per batch, one line per rank and the buckets as rank 0 captured them."""
    told: list[Block] = []
    for ranks in turns(case, seen, contract):
        batch = ranks[0].batch
        told += ["", f"lengths {','.join(map(str, batch.lengths)) or 'none'}: {batch.num_tokens} tokens"]
        told += [[turn_line(turn) for turn in ranks]]
        told += [] if ranks[0].why_eager else [buckets(ranks[0].question())]
    return told[1:]


def turn_line(turn: Turn) -> dict[str, Any]:
    live, need = (None, None) if turn.why_eager else (turn.live[turn.rank], turn.required)
    had = {"rank": turn.rank, "live": live, "padded": need, "captured": turn.rows, "active": turn.active}
    return had | {"admitted": turn.admitted, "selected": turn.selected, "replayed": turn.loaded}


def of_dispatch(case: cases.DispatchCase, seen: Any, contract: Contract) -> list[Block]:
    """What every rank has and replays, and which graphs could run it; below, what each graph was captured for."""
    each, ranks = case.tokens_per_decode, []
    for rank, (step, chosen) in enumerate(zip(case.ranks, seen.chosen, strict=True)):
        able = [str(graph) for graph in seen.captured if not refusals(graph, step, tokens_per_decode=each)]
        told = {"decodes": step.decodes, "prefills": step.prefills, "tokens": tokens(step, each)}
        ranks.append({"rank": rank} | told | {"replays": chosen or "eager", "could run in": ", ".join(able) or None})
    return [ranks, "", [captured_for(graph) for graph in seen.captured]]


def captured_for(graph: Graph) -> dict[str, Any]:
    kinds = {"requests": graph.num_requests, "decodes": graph.num_decodes, "prefills": graph.num_prefills}
    steps = "with a prefill" if graph.needs_prefill else "any"
    return {"graph": graph} | kinds | {"tokens each": graph.tokens_per_request, "steps": steps}


def pass_lines(number: Any, reports: cases.Pass, answers: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for rank, (report, verdict) in enumerate(zip(reports, answers, strict=True)):
        said = {"verdict": verdict}
        if isinstance(verdict, Verdict):
            decision = "allow" if verdict.allow else "delay"
            said = {"verdict": decision, "reason": verdict.reason, "wait": verdict.wait_passes}
        yield dict(zip(PASS, (number, rank, *vars(report).values()), strict=True)) | said


def of_passes(case: cases.PassesCase, seen: Any, contract: Contract) -> list[Block]:
    both = enumerate(zip(case.passes, seen.passes, strict=True), start=1)
    return [[line for number, one in both for line in pass_lines(number, *one)]]


def of_last_pass(case: cases.LastPassCase, seen: Any, contract: Contract) -> list[Block]:
    numbers = (*range(1, len(case.history) + 1), "last", "other last")
    answers = (*seen.history, seen.last, seen.other_last)
    passes = zip(numbers, (*case.history, case.last, case.other_last), answers, strict=True)
    return [[line for one in passes for line in pass_lines(*one)]]


PICTURES: dict[type, Callable[[Any, Any, Contract], list[Block]]] = {
    cases.LayoutCase: of_layout,
    cases.BadLayoutCase: columns("rank", "active", "required", "rows"),
    cases.SelectCase: of_select,
    cases.SelectPairCase: of_pair,
    cases.CaptureCase: of_capture,
    cases.ReplayCase: of_replay,
    cases.DispatchCase: of_dispatch,
    cases.PassesCase: of_passes,
    cases.LastPassCase: of_last_pass,
    cases.AttemptsCase: columns("pass", "attempts", "max_prefill_bs"),
    cases.VotesCase: columns("rank", "mid_chunk", "waiting", "prefillable"),
}
