"""Is an adapter broken, or is the engine behind it wrong? One small question per capability, with a known answer.

Nothing here judges the engine: an answer of the right shape passes, unless it is one that only a broken adapter gives.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpbcg_ref import answers, asking, cases
from cpbcg_ref.answers import Raised
from cpbcg_ref.engines.contract import METHODS, Contract

BATCH = cases.Batch(lengths=(8,), prefixes=(0,))  # on two ranks, in blocks of two tokens
GOLDEN_ROWS = {"zigzag": ((0, 1, 6, 7), (2, 3, 4, 5)), "interleave": ((0, 2, 4, 6), (1, 3, 5, 7))}
LOCAL_ROWS = ((0, 1, 2, 3), (0, 1, 2, 3))


@dataclass(frozen=True)
class Line:
    """state: "ok", "broken" or "not offered". text: what to fix, or the reason."""

    what: str
    state: str
    text: str


def smoke(engine: Any) -> list[Line]:
    """One line for the attributes, then one per capability; broken attributes end it."""
    problems = list(wrong_attributes(engine))
    if problems:
        return [Line("attributes", "broken", "; ".join(problems))]
    declared = Line("attributes", "ok", f"{engine.name} {engine.version}")
    return [declared, *(capability(engine, name) for name in METHODS)]


def wrong_attributes(engine: Any) -> Iterator[str]:
    for name in ("name", "version"):
        if not isinstance(getattr(engine, name, None), str):
            yield f"{name} must be a str, it is {getattr(engine, name, None)!r}"
    if not isinstance(getattr(engine, "contract", None), Contract):
        yield f"contract must be a cpbcg_ref.engines.contract.Contract, it is {getattr(engine, 'contract', None)!r}"
    roots = getattr(engine, "roots", None)
    if not isinstance(roots, (tuple, list)) or not roots:
        yield f"roots must be a non-empty tuple of paths, it is {roots!r}: without it no exception is the engine's"
    else:
        yield from (f"root {str(root)!r} does not exist" for root in roots if not Path(root).exists())
    unknown = sorted(set(getattr(engine, "unavailable", {})) - set(METHODS))
    if unknown:
        yield f"unavailable names {', '.join(unknown)}, the capabilities are {', '.join(METHODS)}"


def capability(engine: Any, name: str) -> Line:
    reason = getattr(engine, "unavailable", {}).get(name)
    lacking = [method for method in METHODS[name] if not callable(getattr(engine, method, None))]
    if reason or lacking == list(METHODS[name]):
        return Line(name, "not offered", reason or f"the adapter has no {', '.join(lacking)}")
    if lacking:
        return Line(name, "broken", f"{name} needs {', '.join(METHODS[name])}: the adapter lacks {', '.join(lacking)}")
    if name in ("layout", "capacity", "replay") and 2 not in engine.contract.cp_sizes:
        return Line(name, "ok", "not asked: the contract excludes the two ranks of the question")
    try:
        problems = list(QUESTIONS[name](engine)) if name in QUESTIONS else []
    except Exception as error:  # whatever came out of the adapter is what we look for
        problems = [came_out(error)]
    return Line(name, "broken" if problems else "ok", "; ".join(problems))


def came_out(error: Exception) -> str:
    if isinstance(error, asking.CaptureFailed):
        return f"the engine could not capture buckets 8 and 16 on 2 ranks: {error}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if Path(last.filename) == Path(asking.__file__):
        return f"calling it or reading its answer failed: {type(error).__name__}: {error} ({last.name})"
    return f"the adapter raised {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def each(method: str, value: Any, fits: Callable[[Any], bool], wanted: str, *, count: int = 2) -> Iterator[str]:
    """What is wrong unless `value` is a tuple of `count` entries that all fit."""
    entries = value if isinstance(value, tuple) else (value,)
    if raised := [entry for entry in entries if isinstance(entry, Raised)]:
        yield f"{method}: the engine raised {raised[0]}: look at what the adapter hands to it"
    elif not isinstance(value, tuple) or len(value) != count:
        yield f"{method} answers {value!r}: it needs {count} entries, one per rank or step"
    elif not all(map(fits, value)):
        yield f"{method} answers {value!r}: every entry must be {wanted}"


def is_int(value: Any) -> bool:
    return type(value) is int


def is_int_or_none(value: Any) -> bool:
    return value is None or is_int(value)


def is_bool(value: Any) -> bool:
    return type(value) is bool


def is_ints(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_int, value))


def is_pairs(value: Any) -> bool:
    return isinstance(value, tuple) and all(is_ints(pair) and len(pair) == 2 for pair in value)


def strategy_of(engine: Any) -> str:
    return "zigzag" if "zigzag" in engine.contract.strategies else str(engine.contract.strategies[0])


def layout(engine: Any) -> Iterator[str]:
    strategy = strategy_of(engine)
    seen = asking.ask_layout(engine, cases.LayoutCase(cp_size=2, batch=BATCH, strategy=strategy))
    rows = seen.rows
    if isinstance(rows, tuple):
        rows = tuple(tuple(row for row in local if row is not None) for local in rows)
    problems = [
        *each("is_cp_active", seen.active, is_bool, "a bool"),
        *each("logical_rows", seen.logical, is_int, "an int"),
        *each("shard", rows, is_ints, "a list of ints"),
        *each("shard_positions", seen.positions, is_ints, "a list of ints"),
        *each("kv_segments", seen.segments, is_pairs, "a list of (rows, keys)"),
    ]
    if not problems:
        problems += each("gather", seen.restored, lambda value: isinstance(value, tuple), "a list of ints")
    yield from problems or misread(rows, GOLDEN_ROWS[strategy])


def misread(rows: Any, golden: Any) -> Iterator[str]:
    """Rows that come from a mistake in the adapter; any others are the engine's own."""
    shown = f"8 tokens on 2 ranks: shard gives {rows[0]} and {rows[1]}"
    if rows == golden[::-1]:
        yield f"{shown}: the ranks are swapped, rank 0 owns {golden[0]}"
    elif rows == LOCAL_ROWS:
        yield f"{shown}: these are local row numbers, hand back the payload that stands in each row"
    elif not set(rows[0] + rows[1]) <= set(range(8)):
        yield f"{shown}: some are no token of the payload, see padding_value in the contract"


def capacity(engine: Any) -> Iterator[str]:
    how = {"cp_size": 2, "strategy": strategy_of(engine)}
    required = asking.each_rank(engine, 2, engine.required_local_tokens, [8], **how)
    return each("required_local_tokens", required, is_int_or_none, "an int or None")


def selection(engine: Any) -> Iterator[str]:
    case = cases.SelectCase(
        num_tokens=8, required_local_tokens=4, capture_num_tokens=(8, 16), bucket_local_tokens=((8, 4), (16, 8))
    )
    answer = asking.ask_select(engine, case).answer
    fits: Callable[[Any], bool] = lambda value: is_int_or_none(value) and value in (8, 16, None)  # noqa: E731
    return each("select_replay_bucket", (answer,), fits, "8, 16 or None", count=1)


def replay(engine: Any) -> Iterator[str]:
    strategy = next(iter(engine.contract.graph_strategies), strategy_of(engine))
    server = cases.Server(cp_size=2, capture_num_tokens=(8, 16), context_length=16, strategy=strategy)
    seen = asking.ask_replay(engine, cases.ReplayCase(server=server, batches=(BATCH,)))
    batch = seen.batches[0]
    yield from each("captured", seen.captured, lambda value: isinstance(value, answers.Captured), "a Captured")
    yield from each("is_cp_active", batch.active, is_bool, "a bool")
    yield from each("can_run_graph", batch.admitted, is_bool, "a bool")
    yield from each("select", batch.bucket, is_int_or_none, "an int or None")
    yield from each("load_batch", batch.loaded, lambda v: v is None or isinstance(v, answers.Loaded), "a Loaded")


def negotiation(engine: Any) -> Iterator[str]:
    config = cases.DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8)
    case = cases.PassesCase(config=config, passes=((cases.RankReport(prefillable=True),) * 2,))
    verdicts = asking.ask_passes(engine, case).passes[0]
    return each("step", verdicts, lambda value: isinstance(value, answers.Verdict), "a Verdict")


def attempts(engine: Any) -> Iterator[str]:
    case = cases.AttemptsCase(attempts=(cases.Attempt(admitted=3),))
    return each("step", asking.ask_attempts(engine, case).max_prefill_bs, is_int, "an int", count=1)


def votes(engine: Any) -> Iterator[str]:
    case = cases.VotesCase(mid_chunk=(False, False), waiting=(1, 0))
    return each("votes", asking.ask_votes(engine, case).prefillable, is_bool, "a bool")


QUESTIONS: dict[str, Callable[[Any], Iterator[str]]] = {
    "layout": layout,
    "capacity": capacity,
    "selection": selection,
    "replay": replay,
    "negotiation": negotiation,
    "attempts": attempts,
    "votes": votes,
}
