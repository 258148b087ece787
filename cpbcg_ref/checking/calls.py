"""The small questions of `cpbcg smoke`: methods of an adapter called directly, so that answers are seen as they are."""

import inspect
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from cpbcg_ref import answers, cases
from cpbcg_ref.asking import answered, global_positions, static_lengths
from cpbcg_ref.engines.contract import Contract

TAKE = "take the arguments that the contract names"
FIRST = 1001  # payloads count from here: what counts from 0 or 1 was not moved but made up
LADDER: dict[str, Any] = {"max_padding_factor": 2, "min_replay_bucket": 0}
CONFIG = cases.DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8)
VERDICT = answers.Verdict(
    allow=True, reason="no_wait", wait_passes=0, episode_open=False, delayed_passes=0, free_pass_used=False
)
CAPTURED = answers.Captured(requests=(), bucket_local_tokens=(), capture_num_tokens=())
LOADED = answers.Loaded(bucket=8, captured_rows=4, live_rows=4)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. given: arguments by position, by name; options: by keyword. golden: an answer of the right kind."""

    method: str
    function: Callable[..., Any]
    given: dict[str, Any]
    options: dict[str, Any]
    golden: Any

    def __str__(self) -> str:
        keywords = ("*", *self.options) if self.options else ()
        return f"{self.method}({', '.join((*self.given, *keywords))})"

    def refused(self) -> str | None:
        """Why the method cannot be called like this."""
        try:
            inspect.signature(self.function).bind(*self.given.values(), **self.options)
        except TypeError as problem:
            mend = (
                "let it take it, or say so in unavailable['captured-rows']" if "captured_rows" in str(problem) else TAKE
            )
            return f"{self.method} is called as {self}, the adapter's does not fit that: {problem}: {mend}"
        except ValueError:  # a function in C tells no signature
            pass
        return None

    def made(self, engine: Any) -> tuple[Any, str]:
        """The answer, and which argument was changed by the call."""
        handed = deepcopy(self.given)
        answer = answered(engine, self.function, *handed.values(), **self.options)
        return answer, next((name for name, value in self.given.items() if handed[name] != value), "")


class Refused(Exception):
    """What is asked further was not made, or cannot be asked further; the text says what and where."""


def ranks_of(contract: Contract) -> int:
    """The smallest group that shards."""
    return min((size for size in contract.cp_sizes if size > 1), default=1)


def plain(contract: Contract, *, ranks: int = 0, requests: int = 2, more: int = 0) -> cases.Batch:
    """Requests that any engine with this contract shards: twice the shortest, of even blocks; the last has `more`."""
    ranks = ranks or ranks_of(contract)
    step = math.lcm(2, max(1, contract.divides)) * ranks
    length = step * -(-max(2 * contract.min_length * ranks, 8) // step)
    count = min(requests, contract.max_requests or requests)
    lengths = (length,) * (count - 1) + (length + more,)
    return cases.Batch(lengths=lengths, prefixes=(0,) * count)


def payload(batch: cases.Batch) -> list[int]:
    return [FIRST + token for token in range(batch.num_tokens)]


def sharding(engine: Any, batch: cases.Batch, ranks: int, strategy: str, **also: Any) -> Call:
    how = {"cp_size": ranks, "strategy": strategy, **also}
    given = {"batch": batch, "payload": payload(batch)}
    return Call(method="shard", function=engine.shard, given=given, options=how, golden=[[0]] * ranks)


def calls(engine: Any, capability: str) -> Iterator[Call]:
    """The calls of one capability; an object in between is made when the calls on it are asked for."""
    contract = engine.contract
    batch, ranks, strategy = plain(contract), ranks_of(contract), contract.strategies[0]
    how = {"cp_size": ranks, "strategy": strategy}

    def of(method: str, golden: Any, on: Any = engine, /, options: dict[str, Any] = how, **given: Any) -> Call:
        function = getattr(on, method.rpartition(".")[2], None)
        if not callable(function):
            raise Refused(f"{method.rpartition('.')[0]} answers {on!r}, which has no {method.rpartition('.')[2]}")
        return Call(method=method, function=function, given=given, options=options, golden=golden)

    match capability:
        case "layout":
            yield sharding(engine, batch, ranks, strategy)
        case "gate":
            yield of("is_cp_active", True, options={**how, "cp_rank": 0}, batch=batch)
        case "rows":
            yield of("logical_rows", [0] * ranks, batch=batch)
        case "positions":
            yield of("shard_positions", [[0]] * ranks, batch=batch, positions=global_positions(batch))
        case "lengths":
            cumulative = static_lengths(batch, 2 * ranks)
            yield of("shard_lengths", [[0]] * ranks, batch=batch, payload=payload(batch), cumulative=cumulative)
        case "keys":
            yield of("kv_segments", [[(0, 0)]] * ranks, batch=batch)
        case "gather":
            rows = answer_of(engine, sharding(engine, batch, ranks, strategy))
            yield of("gather", [[0]] * ranks, batch=batch, rows=rows)
        case "captured-rows":
            captured = batch.num_tokens  # more than any rank owns
            yield (call := sharding(engine, batch, ranks, strategy, captured_rows=captured))
            options = {**how, "captured_rows": captured}
            yield of("gather", [[0]] * ranks, options=options, batch=batch, rows=answer_of(engine, call))
        case "capacity":
            yield of("required_local_tokens", 0, options={**how, "cp_rank": 0}, lengths=list(batch.lengths))
        case "selection":
            asked = {"num_tokens": 8, "required_local_tokens": 4, "capture_num_tokens": [8, 16]}
            yield of("select_replay_bucket", 8, options={**asked, "bucket_local_tokens": {8: 4, 16: 8}, **LADDER})
        case "replay":
            if not contract.graph_strategies:
                raise Refused("graph_strategies in the contract is empty: name what start captures graphs for")
            started = started_server(engine, ranks=ranks, strategy=contract.graph_strategies[0])
            on_rank = {"cp_rank": 0}
            yield of("start(...).captured", CAPTURED, started, options=on_rank)
            whole = cases.Batch(lengths=(4 * ranks,), prefixes=(0,))
            for method, golden in {"is_cp_active": True, "can_run_graph": True, "select": 0}.items():
                yield of(f"start(...).{method}", golden, started, options=on_rank, batch=whole)
            yield of("start(...).load_batch", LOADED, started, options=on_rank, batch=whole)
        case "negotiation":
            delayers = answer_of(engine, of("start_delayers", None, options={}, config=CONFIG))
            reports = (cases.RankReport(prefillable=True),) * 2
            yield of("start_delayers(...).step", [VERDICT] * 2, delayers, options={}, reports=reports)
        case "attempts":
            window = answer_of(engine, of("start_attempts", None, options={}))
            yield of("start_attempts().step", 0, window, options={}, attempt=cases.Attempt(admitted=3))
        case "votes":
            yield of("votes", [True] * 2, options={}, mid_chunk=(False, False), waiting=(1, 0))


def started_server(engine: Any, *, ranks: int, strategy: str) -> Any:
    """A server whose buckets hold one and two requests of 4 tokens per rank."""
    ladder = (4 * ranks, 8 * ranks)
    server = cases.Server(cp_size=ranks, capture_num_tokens=ladder, context_length=8 * ranks, strategy=strategy)
    call = Call(method="start", function=engine.start, given={"server": server}, options={}, golden=None)
    return answer_of(engine, call)


def answer_of(engine: Any, call: Call) -> Any:
    answer, _ = call.made(engine)
    if isinstance(answer, answers.Raised):
        raise Refused(f"{call.method}: the engine raised {answer}: look at what the adapter hands to it")
    return answer
