"""Read what a server is configured with: a TOML file, keys under the names that the server's own flags have.

    [server]                                    [delayer]
    cp_size = 4                                 dp_size = 4
    capture_num_tokens = [2048, 2304, 2560]     max_delay_passes = 30
    context_length = 4096                       max_running_requests = 1024

One table may be missing; nothing is guessed and nothing is repaired. What a value may be is the specification's to say.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import cpbcg_ref
from cpbcg_ref.cases import DelayerConfig, Deployment, Server
from cpbcg_ref.errors import InvalidInput

TABLES: dict[str, type] = {"server": Server, "delayer": DelayerConfig}
RULES: dict[str, type] = {"server": cpbcg_ref.CaptureTable, "delayer": cpbcg_ref.DelayerConfig}  # raise InvalidInput


def read_deployment(path: Path) -> Deployment:
    """The deployment that a TOML file describes.

    Raises InvalidInput naming file, key, value and rule: unreadable file, unknown or missing key, wrong type, a value
    out of range, or values with which no request could be captured.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        if not tables:
            raise InvalidInput("describes nothing: a deployment has a table [server], [delayer] or both")
        return Deployment(**{name: read_table(name, values) for name, values in tables.items()})
    except InvalidInput as problem:
        raise InvalidInput(f"{path}: {problem}") from problem
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{path}: cannot be read as TOML: {problem}") from problem


def read_table(name: str, values: Any) -> Any:
    refuse_unknown("table", name, TABLES)
    if not isinstance(values, dict):
        raise InvalidInput(f"{name} is {values!r}: it must be a table, [{name}]")
    known = {field.name: field.default is MISSING for field in fields(TABLES[name])}
    for key in values:
        refuse_unknown(f"key of [{name}]", key, known)
    if lacking := [key for key, needed in known.items() if needed and key not in values]:
        raise InvalidInput(f"[{name}] lacks {lacking[0]}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        RULES[name](**{"ladder" if key == "capture_num_tokens" else key: value for key, value in values.items()})
    except InvalidInput as problem:
        raise InvalidInput(f"[{name}] {str(problem).replace('ladder is', 'capture_num_tokens is')}") from problem
    if (share := values.get("token_usage_low_watermark", 0)) > 1:
        raise InvalidInput(f"[{name}] token_usage_low_watermark is {share}: a share of the cache is at most 1")
    return TABLES[name](**values)


def refuse_unknown(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1) or sorted(known)
        raise InvalidInput(f"{name} is an unknown {what}: did you mean {' or '.join(near)}?")
