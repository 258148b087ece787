"""Is an adapter broken, or is the engine behind it wrong? A few small questions per capability.

Nothing here judges the engine: answers of the right types pass, whatever their numbers, unless they are numbers that
only a broken adapter gives. What is broken is told with what to change.
"""

import inspect
import traceback
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from cpbcg_ref.answers import Raised
from cpbcg_ref.checking import mistakes
from cpbcg_ref.checking.calls import Call, Refused, calls, payload, plain, ranks_of, sharding
from cpbcg_ref.checking.declared import broken_promise, nothing_ran, wrong_attribute, wrong_contract
from cpbcg_ref.checking.dispatching import misdispatched
from cpbcg_ref.checking.executed import recording
from cpbcg_ref.engines.contract import METHODS, missing
from cpbcg_ref.engines.reference import Reference

WAITS = "it is asked with what shard gives: that comes first"


class Line(NamedTuple):
    """state: "ok", "broken" or "not offered". text: what to fix, or the reason."""

    state: str
    asked: str
    text: str


def smoke(engine: Any) -> list[Line]:
    """A line for the attributes, the contract and each capability; what is broken of the first two ends it."""
    for about, problem in (("attributes", wrong_attribute(engine)), ("contract", wrong_contract(engine.contract))):
        if problem:
            return [Line("broken", about, problem)]
    executed: set[str] = set()
    with recording(engine, executed):
        told = list(told_by(engine))
        promised = broken_promise(engine) if Line("ok", "layout", "") in told else None
    sound = promised is None and {"ok"} <= {line.state for line in told} <= {"ok", "not offered"}
    roots = nothing_ran(engine) if sound and not executed else None
    attributes = Line("broken", "attributes", roots) if roots else Line("ok", "attributes", named(engine))
    return [attributes, Line("broken" if promised else "ok", "contract", promised or ""), *told]


def told_by(engine: Any) -> Iterator[Line]:
    """A line per capability; what is asked with the rows that `shard` gives waits until those are right."""
    rows = capability(engine, "layout")
    for name in METHODS:
        waits = name in ("gather", "captured-rows") and rows.state != "ok" and not missing(engine, name)
        yield Line("not offered", name, WAITS) if waits else rows if name == "layout" else capability(engine, name)


def named(engine: Any) -> str:
    return f"{engine.name} {engine.version}"


def capability(engine: Any, name: str) -> Line:
    reason, method = missing(engine, name), METHODS[name]
    if name in getattr(engine, "unavailable", {}):
        return Line("not offered", name, str(reason))
    if reason:
        near = meant(engine, method)
        misspelt = f"the adapter has no {method}: call its {near} so" if near else ""
        return Line("broken" if near else "not offered", name, misspelt or reason)
    problem = first_problem(engine, name)
    return Line("broken" if problem else "ok", name, problem or "")


def meant(engine: Any, method: str) -> str | None:
    """What the adapter calls something else, although that looks like this method."""
    own = [name for name in dir(type(engine)) if not name.startswith("_") and name not in METHODS.values()]
    return next(iter(get_close_matches(method, own, n=1, cutoff=0.8)), None)


def first_problem(engine: Any, name: str) -> str | None:
    """Of the calls of one capability; where each answer is right, of what they show together."""
    method = METHODS[name]
    try:
        for call in calls(engine, name):
            method = call.method
            if problem := call.refused() or wrong_answer(engine, call):
                return problem
        together = {"layout": misread, "positions": renumbered, "keys": turned, "captured-rows": stripped}
        together |= {"dispatch": misdispatched}
        return together[name](engine) if name in together else None
    except Refused as refused:
        return str(refused)
    except (Exception, SystemExit) as error:  # whatever came out of the adapter is what we look for
        return escaped(engine, method, error)


def wrong_answer(engine: Any, call: Call) -> str | None:
    answer, changed = call.made(engine)
    answered = answer if isinstance(answer, (list, tuple)) else [answer]
    if raised := [one for one in answered if isinstance(one, Raised)]:
        return f"{call.method}: the engine raised {raised[0]}: look at what the adapter hands to it"
    if changed:
        return f"{call.method} changes the {changed} that it is handed: let it work on a copy"
    return mistakes.unlike(call.method, answer, call.golden)


def escaped(engine: Any, method: str, error: BaseException) -> str:
    """An exception that is not the engine's: from the adapter's own lines, or from a file that no root covers."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = f"{method} raised {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    own = ""
    with suppress(TypeError):  # a class that came from no file
        own = inspect.getfile(type(engine))
    if last.filename == own:
        return f"{raised}: mend this line of the adapter, only what is raised under roots is an answer"
    return f"{raised}: if {last.filename} is the engine's, name it or its folder in roots; else mend the adapter"


def misread(engine: Any) -> str | None:
    """What the rows of small batches show that no engine does by itself."""
    contract = engine.contract
    ranks, strategy, pad = ranks_of(contract), contract.strategies[0], contract.padding_value
    odd = 0 if contract.divides else 1
    for batch in (plain(contract), plain(contract, requests=1, more=odd)):
        rows, golden = (sharding(one, batch, ranks, strategy).made(one)[0] for one in (engine, Reference()))
        if isinstance(rows, Raised):
            return None  # the engine's own business
        if problem := mistakes.unlike("shard", rows, [[0]] * ranks):
            return problem
        handed = payload(batch)
        problem = mistakes.misplaced(rows, golden, lengths=batch.lengths, payload=handed, pad=pad)
        if problem:
            return f"of payload {handed[0]} to {handed[-1]} on {ranks} ranks shard gives {rows}: {problem}"
    return None


def stripped(engine: Any) -> str | None:
    """Rows without the padding up to the captured ones."""
    contract, batch = engine.contract, plain(engine.contract)
    captured, ranks = batch.num_tokens, ranks_of(contract)
    call = sharding(engine, batch, ranks, contract.strategies[0], captured_rows=captured)
    rows = call.made(engine)[0]
    if all(len(own) == captured for own in rows):
        return None
    counts = " and ".join(str(len(own)) for own in rows)
    return f"shard gives {counts} rows where captured_rows is {captured}: hand them back with all of their padding"


def renumbered(engine: Any) -> str | None:
    """Positions of one request that are not the ones handed over."""
    contract, batch = engine.contract, plain(engine.contract, requests=1)
    how = {"cp_size": ranks_of(contract), "strategy": contract.strategies[0]}
    rows = engine.shard_positions(batch, list(range(batch.num_tokens)), **how)
    return mistakes.renumbered("shard_positions", rows)


def turned(engine: Any) -> str | None:
    """Do rows and segments of one request speak of the same order."""
    if missing(engine, "layout"):
        return None
    contract, batch = engine.contract, plain(engine.contract, requests=1)
    call = sharding(engine, batch, ranks_of(contract), contract.strategies[0])
    rows = call.made(engine)[0]
    if isinstance(rows, Raised) or mistakes.unlike("shard", rows, call.golden):
        return None  # told at layout
    segments = engine.kv_segments(batch, **call.options)
    return mistakes.turned_round(rows, segments, pad=contract.padding_value)
