"""Stored ratios and the page of figures: `pytest benchmarks/ --store` writes both, from one run."""

import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parents[1]
RATIOS, PAGE = ROOT / "benchmarks" / "ratios.json", ROOT / "docs" / "benchmarks.md"
COMMAND, WIDTH = "pytest benchmarks/", 120

TEXT = """# Benchmarks

`{command}` measures what stands here, in half a minute of one core; `{command} --store` writes this page
and `benchmarks/ratios.json`. Measured on {day}, on {machine}.

A ratio is the median over {pairs} pairs of calls, one of each side in turn, in CPU time: a busy machine slows both.
"SGLang" is the code of release 0.5.23 as published, asked on Python lists in the adapter's loaded modules. Nothing is
memoised on either side, and ours includes the checks of its input. `tox -e benchmarks` fails if a ratio is more than a
third below the stored one; figures that are no ratios depend on the machine and fail nothing.

| what | figure | promised |
|---|---|---|
{rows}

{notes}"""


@dataclass(frozen=True)
class Row:
    """One line of the table. ratio: to be stored, None for a figure that hangs on the machine."""

    name: str
    figure: str
    promised: str = ""
    ratio: float | None = None
    least: float = 0


def machine() -> str:
    """In words, without a name."""
    import numpy

    told = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in told if line.startswith("model name")), "processor")
    versions = f"CPython {platform.python_version()}, NumPy {numpy.__version__}"
    return f"{os.cpu_count()} cores of an {model} under {platform.system()}, {versions}"


def stored() -> dict[str, float]:
    return {name: one["ratio"] for name, one in json.loads(RATIOS.read_text()).items()} if RATIOS.exists() else {}


def store(rows: Iterable[Row], notes: Iterable[str], *, pairs: int) -> None:
    rows = list(rows)
    kept = {row.name: {"ratio": round(row.ratio, 2), "promised": row.least} for row in rows if row.ratio is not None}
    RATIOS.write_text(json.dumps(kept, indent=2) + "\n")
    lines = [f"| {row.name} | {row.figure} | {row.promised} |" for row in rows]
    told = {"command": COMMAND, "day": time.strftime("%Y-%m-%d"), "machine": machine(), "pairs": pairs}
    PAGE.write_text(
        TEXT.format(rows="\n".join(lines), notes="\n\n".join(fill(note, WIDTH) for note in notes) + "\n", **told)
    )
