"""Read what a server is configured with: a TOML file, keys under the names that the server's own flags have.

    [server]                                    [delayer]
    cp_size = 4                                 dp_size = 4
    capture_num_tokens = [2048, 2304, 2560]     max_delay_passes = 30
    context_length = 4096                       max_running_requests = 1024

One table may be missing; nothing is guessed and nothing is repaired.
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import DelayerConfig, Deployment, Server
from cpbcg_ref.errors import InvalidInput

Rule = tuple[Callable[[Any], bool], str]  # does the value hold, and what to say when it does not


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def at_least(low: int, unit: str) -> Rule:
    return lambda value: is_int(value) and value >= low, f"an integer >= {low} ({unit})"


def number(low: float, high: float, unit: str) -> Rule:
    def holds(value: Any) -> bool:
        return (is_int(value) or isinstance(value, float)) and math.isfinite(value) and low <= value <= high

    return holds, f"a number >= {low:g} ({unit})" if math.isinf(high) else f"a number from {low:g} to {high:g} ({unit})"


def is_ladder(value: Any) -> bool:
    whole = isinstance(value, list) and bool(value) and all(is_int(bucket) and bucket >= 1 for bucket in value)
    return whole and value == sorted(set(value))


KINDS: dict[str, type] = {"server": Server, "delayer": DelayerConfig}
RULES: dict[str, dict[str, Rule]] = {
    "server": {
        "cp_size": at_least(1, "ranks"),
        "strategy": (lambda value: value in ("zigzag", "interleave"), 'either "zigzag" or "interleave"'),
        "capture_num_tokens": (is_ladder, "a list of integers >= 1, ascending, no duplicate (tokens)"),
        "context_length": at_least(1, "tokens of the longest request"),
        "max_padding_factor": at_least(1, "bucket / tokens"),
        "min_replay_bucket": at_least(0, "tokens"),
    },
    "delayer": {
        "dp_size": at_least(1, "ranks"),
        "max_delay_passes": at_least(0, "scheduler passes"),
        "max_delay_ms": number(0, math.inf, "milliseconds"),
        "queue_min_ratio": number(0, math.inf, "waiting / running"),
        "prefill_max_requests": at_least(1, "requests"),
        "max_running_requests": at_least(1, "requests"),
        "token_usage_low_watermark": number(0, 1, "share of the cache"),
        "enable_dp_attention": (lambda value: isinstance(value, bool), "true or false"),
    },
}


def read_deployment(path: Path) -> Deployment:
    """The deployment that a TOML file describes.

    Raises InvalidInput naming file, key, value and rule: unreadable file, unknown or missing key, wrong type, a value
    out of range, or values that contradict each other.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InvalidInput(f"{path}: cannot be read as TOML: {problem}") from problem
    if not tables:
        raise InvalidInput(f"{path}: describes nothing: a deployment has a table [server], [delayer] or both")
    for name in tables:
        refuse_unknown(name, RULES, f"{path}: [{name}]", "table")
    return Deployment(**{name: read_table(name, values, path) for name, values in tables.items()})


def read_table(name: str, values: Any, path: Path) -> Any:
    rules = RULES[name]
    if not isinstance(values, dict):
        raise InvalidInput(f"{path}: {name} = {values!r}: must be a table, [{name}]")
    for key, value in values.items():
        refuse_unknown(key, rules, f"{path}: [{name}] {key} = {value!r}", "key")
        holds, rule = rules[key]
        if not holds(value):
            raise InvalidInput(f"{path}: [{name}] {key} = {value!r}: must be {rule}")
    for field in dataclasses.fields(KINDS[name]):
        if field.default is dataclasses.MISSING and field.name not in values:
            raise InvalidInput(f"{path}: [{name}] {field.name} is missing: must be {rules[field.name][1]}")
    if name == "server":
        refuse_contradictions(values, path)
    return KINDS[name](**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def refuse_unknown(name: str, known: dict[str, Any], where: str, what: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1) or sorted(known)
        raise InvalidInput(f"{where}: unknown {what}: did you mean {' or '.join(near)}?")


def refuse_contradictions(server: dict[str, Any], path: Path) -> None:
    """Values that are fine alone and cannot stand together: no request could ever be sharded."""
    shortest = 1 if server["cp_size"] == 1 else (2 if server.get("strategy") != "interleave" else 1) * server["cp_size"]
    if server["context_length"] < shortest:
        raise InvalidInput(
            f"{path}: [server] context_length = {server['context_length']} contradicts cp_size = {server['cp_size']}: "
            f"the longest request has fewer than the {shortest} tokens that a request needs to be sharded"
        )
    if server["capture_num_tokens"][-1] < shortest:
        raise InvalidInput(
            f"{path}: [server] capture_num_tokens = {server['capture_num_tokens']} contradicts cp_size = "
            f"{server['cp_size']}: no bucket has the {shortest} tokens that a request needs to be sharded"
        )
