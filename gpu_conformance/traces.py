"""Prompt lengths of public request traces: Azure's CSV and Mooncake's JSON lines."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from cpbcg_ref.errors import InvalidInput

CSV_COLUMNS = ("ContextTokens", "num_prefill_tokens")


def prompts(path: Path) -> Iterator[int]:
    """Tokens of each prompt, in order of arrival. Raises InvalidInput naming file, line and rule."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{path}: cannot be read as a trace: {problem}") from problem
    lines = text.splitlines()
    if not lines:
        raise InvalidInput(f"{path}: is empty; a trace has a request per line")
    reader = from_json if lines[0].lstrip().startswith("{") else from_csv
    yield from reader(path, lines)


def from_json(path: Path, lines: list[str]) -> Iterator[int]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            length = json.loads(line)["input_length"]
        except (ValueError, KeyError, TypeError) as problem:
            raise InvalidInput(f"{path}:{number}: is no request with an input_length: {line[:60]!r}") from problem
        yield positive(path, number, length)


def from_csv(path: Path, lines: list[str]) -> Iterator[int]:
    rows = csv.DictReader(lines)
    column = next((name for name in CSV_COLUMNS if name in (rows.fieldnames or ())), None)
    if column is None:
        raise InvalidInput(f"{path}: has the columns {rows.fieldnames}; one of {', '.join(CSV_COLUMNS)} is needed")
    for number, row in enumerate(rows, start=2):
        yield positive(path, number, row[column])


def positive(path: Path, number: int, value: object) -> int:
    tokens = int(str(value)) if str(value).strip().isdecimal() else 0
    if tokens < 1:
        raise InvalidInput(f"{path}:{number}: prompt length {value!r}: a prompt has at least 1 token")
    return tokens
