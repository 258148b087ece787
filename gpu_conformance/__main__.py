"""`python -m gpu_conformance`: replay the buckets that an engine chooses on real groups of ranks, and compare."""

import re
import sys
import time
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.cli import ending_well
from cpbcg_ref.commands.shared import JSON, SEED, UNPINNED, note


def inject_of(context: Any, parameter: Any, text: str | None) -> Any:
    from gpu_conformance.group import KINDS, Inject

    if text is None:
        return None
    parsed = re.fullmatch(r"(\w+):(\d+)@(\d+)", text)
    if not parsed or parsed[1] not in KINDS:
        rule = f"write KIND:RANK@BATCH, such as kill:1@10; kinds: {', '.join(KINDS)}"
        raise click.BadParameter(f"{text!r}: {rule}")
    return Inject(kind=parsed[1], rank=int(parsed[2]), batch=int(parsed[3]))


def integers(context: Any, parameter: Any, text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if wrong := [word for word in words if not word.isdecimal() or not int(word)]:
        raise click.BadParameter(f"{wrong[0]!r} is not an integer >= 1")
    return tuple(sorted(set(map(int, words))))


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--driver", type=click.Choice(["auto", "lockstep", "gloo", "nccl"]), default="auto", show_default=True)
@click.option("--cp-size", "cp_sizes", callback=integers, metavar="N,N", help="Ranks of a group.  [default: by driver]")
@click.option("--buckets", callback=integers, metavar="B,B,...", help="Ladder in tokens.  [default: by cp size]")
@click.option("--target", default="reference", show_default=True, help="Whose selector chooses; as in cpbcg check.")
@click.option("--batches", type=click.IntRange(min=1), default=30, show_default=True, help="Drawn batches per group.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--trace", type=Path, metavar="FILE", help="Prompt lengths: Azure's CSV or Mooncake's JSON lines.")
@click.option("--plant", metavar="NAME", default="", help="Plant a defect that must be caught.")
@click.option("--inject", callback=inject_of, metavar="KIND:RANK@BATCH", help="Let a rank fail, such as kill:1@10.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Seconds.")
@JSON
@UNPINNED
def main(target: str, json_file: str | None, allow_unpinned: bool, plant: str, **options: Any) -> int:
    """Capture a graph per bucket on every rank, let TARGET choose for each batch, replay, compare.

    Without a GPU this replays recorded operations into the same addresses; a GPU is used if there is one.

    \b
    python -m gpu_conformance
    python -m gpu_conformance --target sglang==0.5.23 --driver gloo --cp-size 4
    python -m gpu_conformance --plant token-only-selection
    python -m gpu_conformance --driver gloo --inject kill:1@10

    Exit code, the first that applies: 1 an invariant is violated; 2 a rank failed, the target cannot be obtained, or
    bad usage; 3 nothing was there to judge; 0.
    """
    from cpbcg_ref.engines.targets import resolve
    from gpu_conformance import elastic, plants, session
    from gpu_conformance.report import Run, deliver, progress

    if plant and plant not in plants.PLANTS:
        raise click.BadParameter(f"{plant!r} is none of {', '.join(plants.PLANTS)}", param_hint="--plant")
    asked = session.Asked(plant=plant, **options)
    engine, began = resolve(target, allow_unpinned=allow_unpinned, progress=note), time.perf_counter()
    with progress() as tell:
        done = session.serve_all(session.groups(asked), engine, progress=tell)
    run = Run(target=target, engine=engine, asked=asked, done=done, seconds=time.perf_counter() - began)
    if not elastic.launched() or elastic.rank() == 0:
        deliver(run, json_file)
    return run.exit_code


if __name__ == "__main__":
    ending_well(main, sys.argv[1:], prog_name="python -m gpu_conformance")
