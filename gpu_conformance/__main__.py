"""`python -m gpu_conformance`: replay the buckets that an engine chooses on real groups of ranks, and compare."""

import re
import sys
import time
from difflib import get_close_matches
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.cli import ending_well
from cpbcg_ref.commands.shared import JSON, SEED, UNPINNED, note
from cpbcg_ref.errors import CpbcgError

WORKLOADS = ("all", "edges", "gqa", "golden")


def need_torch() -> None:
    if find_spec("torch") is None:
        raise CpbcgError("replaying needs torch, which is not installed: pip install 'cpbcg[torch]'")


def inject_of(context: Any, parameter: Any, text: str | None) -> Any:
    need_torch()
    from gpu_conformance.group import KINDS, Inject

    if text is None:
        return None
    parsed = re.fullmatch(r"(\w+):(\d+)@(\d+)", text, re.ASCII)
    if not parsed or parsed[1] not in KINDS:
        rule = f"write KIND:RANK@BATCH, such as kill:1@10; kinds: {', '.join(KINDS)}"
        raise click.BadParameter(f"{text!r}: {rule}")
    return Inject(kind=parsed[1], rank=int(parsed[2]), batch=int(parsed[3]))


def seconds(context: Any, parameter: Any, value: float) -> float:
    """What is no number is in every range."""
    if isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


def plant_of(context: Any, parameter: Any, name: str) -> str:
    need_torch()
    from gpu_conformance.plants import PLANTS

    if name and name not in PLANTS:
        near = get_close_matches(name, PLANTS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(PLANTS)}"
        raise click.BadParameter(f"no planted defect is called {name!r}: {hint}")
    return name


def integers(context: Any, parameter: Any, text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",")] if text is not None else []
    if wrong := [word for word in words if not re.fullmatch(r"[0-9]{1,9}", word) or not int(word)]:
        raise click.BadParameter(f"{wrong[0]!r} is not an integer from 1 to 999999999; write 2,4")
    return tuple(sorted(set(map(int, words))))


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--driver", type=click.Choice(["auto", "lockstep", "gloo", "nccl"]), default="auto", show_default=True,
              help="How ranks run: all in one process, or a process each.")  # fmt: skip
@click.option("--cp-size", "cp_sizes", callback=integers, metavar="N,N", help="Ranks of a group.  [default: 2,4,8]")
@click.option("--buckets", callback=integers, metavar="B,B", help="Ladder in tokens.  [default: by cp size]")
@click.option("--context-length", type=click.IntRange(1, 65536), metavar="N", help="Longest request in tokens.")
@click.option("--target", default="reference", show_default=True, help="Whose selector chooses; as in cpbcg check.")
@click.option("--workload", type=click.Choice(WORKLOADS), default="all", show_default=True, help="What is offered.")
@click.option("--batches", type=click.IntRange(1, 100000), default=30, show_default=True, help="Drawn ones, per group.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Same seed, same batches.")
@click.option("--trace", type=Path, metavar="FILE", help="Prompt lengths: Azure's CSV or Mooncake's JSON lines.")
@click.option("--arithmetic", type=click.Choice(["both", "smooth", "exact"]), default="both", show_default=True,
              help="Like a real model, or integers that compare to the bit.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True)
@click.option("--plant", callback=plant_of, metavar="NAME", default="", help="Plant a defect that must be caught.")
@click.option("--inject", callback=inject_of, metavar="KIND:RANK@BATCH", help="Let a rank fail, such as kill:1@10.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1, 3600), callback=seconds, default=20.0,
              show_default=True, help="Seconds without progress after which a rank has failed.")  # fmt: skip
@JSON
@UNPINNED
def main(target: str, json_file: str | None, allow_unpinned: bool, workload: str, dtype: str, **options: Any) -> int:
    """Capture a graph per bucket on every rank, let TARGET choose for each batch, replay, compare.

    Without a GPU this replays recorded operations into the same addresses; a GPU is used if there is one.
    docs/gpu_conformance.md says what is compared.

    \b
    python -m gpu_conformance
    python -m gpu_conformance --target sglang==0.5.23 --driver gloo --cp-size 4
    python -m gpu_conformance --trace AzureLLMInferenceTrace_conv.csv --cp-size 2
    python -m gpu_conformance --plant token-only-selection
    python -m gpu_conformance --driver gloo --inject kill:1@10
    torchrun --nproc-per-node=4 -m gpu_conformance --driver nccl

    Exit code, the first that applies: 1 an invariant is violated; 2 a rank failed, the target cannot be obtained, or
    bad usage; 3 an invariant's interesting case never came up; 0.
    """
    need_torch()
    import torch

    from cpbcg_ref.engines.targets import resolve
    from cpbcg_ref.report import files
    from gpu_conformance import elastic, scenarios, session
    from gpu_conformance.report import Run, deliver, progress

    files.check_writable(json_file)
    if options["trace"] and workload != "all":
        raise click.UsageError("--trace is a workload of its own: leave out --workload")
    options["workload"] = scenarios.WORKLOADS if workload == "all" else (workload,)
    asked = scenarios.Asked(dtype=getattr(torch, dtype), **options)
    engine, began = resolve(target, allow_unpinned=allow_unpinned, progress=note), time.perf_counter()
    served = scenarios.groups(asked, engine.contract, tell=note)
    with progress() as tell:
        done = session.serve_all(served, engine, progress=tell)
    run = Run(target=target, engine=engine, asked=asked, done=done, seconds=time.perf_counter() - began)
    if not elastic.launched() or elastic.rank() == 0:
        deliver(run, json_file)
    return run.exit_code


if __name__ == "__main__":
    ending_well(main, sys.argv[1:], prog_name="python -m gpu_conformance")
