"""Is an adapter broken, or is the engine behind it wrong? One small question per capability.

Nothing here judges the engine: answers that look like the reference's pass, whatever their numbers, unless they are
numbers that only a broken adapter gives.
"""

import traceback
from pathlib import Path
from typing import Any, NamedTuple

from cpbcg_ref import asking, cases
from cpbcg_ref.answers import Raised
from cpbcg_ref.engines.contract import METHODS, missing
from cpbcg_ref.engines.reference import Reference

BATCH = cases.Batch(lengths=(8,), prefixes=(0,))
LADDER: dict[str, Any] = {"capture_num_tokens": (8, 16), "bucket_local_tokens": ((8, 4), (16, 8))}
SELECT = cases.SelectCase(num_tokens=8, required_local_tokens=4, **LADDER)
CONFIG = cases.DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8)
PASSES = cases.PassesCase(config=CONFIG, passes=((cases.RankReport(prefillable=True),) * 2,))
ATTEMPTS = cases.AttemptsCase(attempts=(cases.Attempt(admitted=3),))
VOTES = cases.VotesCase(mid_chunk=(False, False), waiting=(1, 0))
REPLAY = {"is_cp_active": "active", "can_run_graph": "admitted", "select": "bucket", "load_batch": "loaded"}
MAY_BE_NONE = ("required_local_tokens", "select_replay_bucket", "select", "load_batch", "shard", "gather")


class Line(NamedTuple):
    """state: "ok", "broken" or "not offered". text: what to fix, or the reason."""

    state: str
    asked: str
    text: str


def smoke(engine: Any) -> list[Line]:
    """One line for the attributes, then one per capability; broken attributes end it."""
    if problem := wrong_attribute(engine):
        return [Line("broken", "attributes", problem)]
    declared = Line("ok", "attributes", f"{engine.name} {engine.version}")
    return [declared, *(capability(engine, name) for name in METHODS)]


def wrong_attribute(engine: Any) -> str | None:
    """Of those that `resolve` does not look at."""
    roots, unknown = getattr(engine, "roots", None), set(getattr(engine, "unavailable", {})) - set(METHODS)
    if not isinstance(roots, (tuple, list)) or not roots:
        return f"roots must be a non-empty tuple of paths, it is {roots!r}: without it no exception is the engine's"
    if absent := [str(root) for root in roots if not Path(root).exists()]:
        return f"root {absent[0]!r} does not exist"
    return f"unavailable names {min(unknown)}, the capabilities are {', '.join(METHODS)}" if unknown else None


def capability(engine: Any, name: str) -> Line:
    if reason := missing(engine, name):
        return Line("not offered", name, reason)
    try:
        problems = misfits(engine, name)
    except Exception as error:  # whatever came out of the adapter is what we look for
        last = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        problems = [f"calling it or reading its answer raised {raised}"]
    return Line("broken" if problems else "ok", name, "; ".join(problems))


def misfits(engine: Any, name: str) -> list[str]:
    """What is wrong with the engine's answers, by the method that gave them."""
    strategies = engine.contract.graph_strategies if name == "replay" else engine.contract.strategies
    seen, golden = (ask(one, name, strategies[0]) for one in (engine, Reference()))
    wrong = [problem for method in seen if (problem := misfit(method, seen[method], golden[method]))]
    return wrong or (misread(seen["shard"], golden["shard"]) if name == "layout" else [])


def ask(engine: Any, name: str, strategy: str) -> dict[str, Any]:
    """The answers to one small question, by method."""
    how: dict[str, Any] = {"cp_size": 2, "strategy": strategy}
    match name:
        case "gate":
            return {"is_cp_active": asking.ask_active(engine, BATCH, **how)}
        case "rows" | "keys" | "positions":
            given = (asking.global_positions(BATCH),) if name == "positions" else ()
            return {METHODS[name]: asking.ask_if_there(engine, name, BATCH, *given, **how)}
        case "layout" | "gather" | "captured-rows":
            how |= {"captured_rows": 8} if name == "captured-rows" else {}
            rows = asking.ask_shard(engine, BATCH, **how)
            sharded = {"shard": asking.as_tokens(engine, rows)}
            return sharded if name == "layout" else {"gather": asking.ask_gather(engine, BATCH, rows, **how)}
        case "capacity":
            return {"required_local_tokens": asking.ask_required(engine, (8,), **how)}
        case "selection":
            return {"select_replay_bucket": asking.ask_select(engine, SELECT).answer}
        case "replay":
            server = cases.Server(cp_size=2, capture_num_tokens=(8, 16), context_length=16, strategy=strategy)
            replayed = asking.ask_replay(engine, cases.ReplayCase(server=server, batches=(BATCH,)))
            of_batch = {method: getattr(replayed.batches[0], field) for method, field in REPLAY.items()}
            return {"captured": replayed.captured, **of_batch}
        case "negotiation":
            return {"step": asking.ask_passes(engine, PASSES).passes[0]}
        case "attempts":
            return {"step": asking.ask_attempts(engine, ATTEMPTS).max_prefill_bs}
        case "votes":
            return {"votes": asking.ask_votes(engine, VOTES).prefillable}
    return {}


def misfit(method: str, value: Any, golden: Any) -> str | None:
    if raised := [entry for entry in (value if isinstance(value, tuple) else (value,)) if isinstance(entry, Raised)]:
        return f"{method}: the engine raised {raised[0]}: look at what the adapter hands to it"
    if looks_like(value, golden, may_be_none=method in MAY_BE_NONE, count=True):
        return None
    return f"{method} answers {value!r}: it must look like {golden!r}"


def looks_like(value: Any, golden: Any, *, may_be_none: bool, count: bool = False) -> bool:
    """The same nesting and types. How many rows or segments a rank has is the engine's business."""
    if not isinstance(golden, tuple):
        return type(value) is type(golden) or (may_be_none and value is None)
    if not isinstance(value, tuple) or (count and len(value) != len(golden)):
        return False
    return all(looks_like(entry, golden[0], may_be_none=may_be_none) for entry in value)


def misread(rows: Any, golden: Any) -> list[str]:
    """Rows that come from a mistake in the adapter; any others are the engine's own."""
    first, second = (tuple(row for row in local if row is not None) for local in rows)
    mistakes = {
        f"the ranks are swapped, rank 0 owns {golden[0]}": (first, second) == golden[::-1],
        "these are local row numbers, hand back the payload that stands in each row": first == second == (0, 1, 2, 3),
        "some are no token of the payload, see padding_value in the contract": not {*first, *second} <= set(range(8)),
    }
    return [f"8 tokens on 2 ranks: shard gives {first} and {second}: {what}" for what, made in mistakes.items() if made]
