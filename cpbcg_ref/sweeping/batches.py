"""Every batch of a part put to an engine: required rows, rows per rank, and the bucket that is then chosen.

What is right comes from ownership.py and, for a bucket, from the registry's checkers, which look at every one.
"""

import time
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from cpbcg_ref import cases
from cpbcg_ref.asking import answered, ask_select, each_rank
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.engines.contract import Contract, missing
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.sweeping.ownership import loads, required
from cpbcg_ref.sweeping.scope import Batches, lengths

Found = tuple[str, str, Any]  # id, sentence, case
RULES = [(one.id, part.check) for one in REGISTRY.values() for part in one.parts if part.family == "select"]


def sweep(engine: Any, part: Batches) -> dict[str, Any]:
    """Ask all batches of the part; per id the first violation."""
    began, asked = time.process_time(), array(part, engine.contract)
    found: dict[str, dict[str, Any]] = {}
    if len(asked):
        for name, sentence, case in judged(engine, part, asked):
            found.setdefault(name, {"message": sentence, "case": as_python(case), "size": part.requests})
    return {"layouts": len(asked), "seconds": time.process_time() - began, "violations": found}


def array(part: Batches, contract: Contract) -> Any:
    """The batches of a part: (batches, requests) lengths."""
    if part.kind == "remainders":
        return every_remainder(part)
    values, left = lengths(part.length, part.cp_size, part.strategy, contract), part.requests - len(part.begin)
    rows = [(*part.begin, *rest) for rest in product(values, repeat=left)] if values else []
    return np.array(rows, dtype=np.int64).reshape(-1, part.requests)


def every_remainder(part: Batches) -> Any:
    """Remainders over one round of blocks, so that each batch is active; the first request has the further rounds."""
    period, left = 2 * part.cp_size, part.requests - len(part.begin)
    rest = combinations_with_replacement(range(max(part.begin, default=0), period), left)
    base = np.array([(*part.begin, *more) for more in rest], dtype=np.int64) + period
    rounds = np.repeat(np.arange(part.cp_size) * period, len(base))
    every = np.tile(base, (part.cp_size, 1))
    every[:, 0] += rounds
    return every


def judged(engine: Any, part: Batches, asked: Any) -> Iterator[Found]:
    group: dict[str, Any] = {"cp_size": part.cp_size, "strategy": part.strategy}
    contract = engine.contract
    owned = loads(asked, **group, blocks=contract.blocks)
    assert (owned.sum(axis=1) == asked.sum(axis=1)).all(), "a token has no owner, or two"
    due, batches = required(owned, **group, contract=contract), [tuple(batch) for batch in asked.tolist()]
    graphs = part.strategy in contract.graph_strategies  # else required rows are of no use and may be None
    if graphs and not missing(engine, "capacity"):
        told = [each_rank(engine, part.cp_size, engine.required_local_tokens, list(b), **group) for b in batches]
        yield from wrong_rows(told, due, batches, group)
        if not missing(engine, "selection"):
            yield from wrong_buckets(engine, part, [rows[0] for rows in told], batches)
    if not missing(engine, "rows"):
        yield from wrong_shares(engine, owned, batches, group)
    if graphs and not missing(engine, "replay"):
        yield from overflows(engine, part, due, batches)


def wrong_rows(told: list[Any], due: list[int], batches: list[Any], group: dict[str, Any]) -> Iterator[Found]:
    for rows, right, batch in zip(told, due, batches, strict=True):
        if rows != (right,) * len(rows):
            sentence = f"{list(batch)} on {len(rows)} ranks: required_local_tokens is {shown(rows)}, not {right}"
            return (yield "capacity.required", sentence, layout(batch, group))
    return None


def wrong_shares(engine: Any, owned: Any, batches: list[Any], group: dict[str, Any]) -> Iterator[Found]:
    for right, batch in zip(owned.tolist(), batches, strict=True):
        rows = answered(engine, engine.logical_rows, whole(batch), **group)
        if rows != right:
            sentence = f"{list(batch)}: ranks say that they own {rows} rows, {right} by token (sum {sum(batch)})"
            return (yield "layout.conserves", sentence, layout(batch, group))
    return None


def wrong_buckets(engine: Any, part: Batches, told: list[Any], batches: list[Any]) -> Iterator[Found]:
    """The selector sees tokens and rows alone, so each pair of them is asked once."""
    table = captured(part, max(map(sum, batches)), engine.contract)
    pairs = {(sum(batch), rows): None for rows, batch in zip(told, batches, strict=True) if isinstance(rows, int)}
    for tokens, rows in pairs:
        case = cases.SelectCase(
            num_tokens=tokens,
            required_local_tokens=rows,
            capture_num_tokens=tuple(table),
            bucket_local_tokens=tuple(table.items()),
        )
        seen = ask_select(engine, case)
        yield from ((name, said, case) for name, check in RULES if (said := check(case, seen, engine.contract)))


def overflows(engine: Any, part: Batches, due: list[int], batches: list[Any]) -> Iterator[Found]:
    """The bucket that a server would replay a batch in, against the rows that the batch really needs."""
    ladder = tuple(captured(part, max(map(sum, batches)), engine.contract))
    server = cases.Server(
        cp_size=part.cp_size, strategy=part.strategy, capture_num_tokens=ladder, context_length=ladder[-1]
    )
    started = engine.start(server)
    table = dict(started.captured(0).bucket_local_tokens)
    for right, batch in zip(due, batches, strict=True):
        bucket = answered(engine, started.select, whole(batch), 0)
        if isinstance(bucket, int) and table.get(bucket, right) < right:
            sentence = f"{list(batch)} needs {right} rows, its bucket {bucket} has {table[bucket]}"
            case = cases.ReplayCase(server=server, batches=(whole(batch),))
            return (yield "capacity.no-overflow", sentence, case)
    return None


def captured(part: Batches, tokens: int, contract: Contract) -> dict[int, int]:
    """A small ladder: a bucket for every second round of blocks, captured as one request. Its rows by definition."""
    group: dict[str, Any] = {"cp_size": part.cp_size, "strategy": part.strategy}
    step = 4 * part.cp_size
    ladder = np.arange(step, tokens + step + 1, step).reshape(-1, 1)
    rows = required(loads(ladder, **group, blocks=contract.blocks), **group, contract=contract)
    return dict(zip(ladder[:, 0].tolist(), rows, strict=True))


def whole(batch: tuple[int, ...]) -> cases.Batch:
    return cases.Batch(lengths=batch, prefixes=(0,) * len(batch))


def layout(batch: tuple[int, ...], group: dict[str, Any]) -> cases.LayoutCase:
    return cases.LayoutCase(batch=whole(batch), **group)


def shown(rows: tuple[Any, ...]) -> str:
    """One answer where the ranks agree."""
    return str(rows[0]) if len(set(rows)) == 1 else str(list(map(str, rows)))
