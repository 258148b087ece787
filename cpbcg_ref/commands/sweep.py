"""`cpbcg sweep`: every case of a small scope, instead of many of a large one."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.commands.shared import AT_LEAST_1, JSON, UNPINNED, note, show
from cpbcg_ref.errors import CpbcgError


def sizes(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    """Such as 2,4: each once, in the order given."""
    told = [one.strip() for one in text.split(",")]
    if not all(one.isascii() and one.isdigit() and 2 <= int(one) <= 1024 for one in told):
        raise click.BadParameter(f"{text!r}: write CP group sizes from 2 on, such as 2,4")
    return tuple(dict.fromkeys(map(int, told)))


@click.command(short_help="Every case of a small scope, not only random ones.")
@click.argument("target", default="reference")
@click.option("--what", type=click.Choice(["batches", "negotiation", "all"]), default="all", show_default=True)
@click.option("--cp-size", "cp_sizes", callback=sizes, default="2,4", show_default=True, metavar="N,N", help="Batches.")
@click.option("--requests", type=AT_LEAST_1, default=5, show_default=True, metavar="N", help="Most of a batch.")
@click.option("--length", type=AT_LEAST_1, metavar="N", help="Longest request, tokens.  [default: each remainder once]")
@click.option("--ranks", type=click.IntRange(1, 4), default=2, show_default=True, metavar="N", help="DP ranks.")
@click.option("--depth", type=AT_LEAST_1, default=12, show_default=True, metavar="N", help="Most passes of a trace.")
@click.option("-n", "--jobs", "workers", type=AT_LEAST_1, metavar="N", help="Processes.  [default: one per core]")
@click.option("--resume", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Journal, see above.")
@click.option("--scheduler", metavar="ADDRESS", help="Ask on the Dask cluster of this scheduler (tcp://host:8786).")
@JSON
@UNPINNED
def sweep(what: str, length: int | None, json_file: str | None, **options: Any) -> int:
    """Ask TARGET every batch of few requests, and search every state that its negotiation reaches.

    \b
    cpbcg sweep
    cpbcg sweep sglang==0.5.21 --what negotiation --depth 4
    cpbcg sweep --what batches --cp-size 8,16 --requests 4 --resume sweep.jsonl

    Batches are compared with what is right by definition: who owns which token, which buckets there are. States are
    visited breadth first, so no trace is shorter than the one that is shown for a violation.

    Parts that are done are kept in a journal, in the user's state folder until all are done or in FILE. The same
    command goes on from there. A journal of another target, scope or code is refused.

    Exit code, the first that applies: 130 it was interrupted; 1 a MUST is violated; 2 an error, or bad usage; 0.
    """
    try:
        from cpbcg_ref.sweeping import run
    except ModuleNotFoundError as problem:
        raise CpbcgError(f"a sweep needs {problem.name}: pip install 'cpbcg[sweep]'") from problem
    from cpbcg_ref.report import files, jsonreport, sweeps
    from cpbcg_ref.report.watching import Watcher
    from cpbcg_ref.sweeping.scope import WHAT, Scope

    files.check_writable(json_file)
    limits = {name: options.pop(name) for name in ("cp_sizes", "requests", "ranks", "depth")}
    scope = Scope(what=WHAT if what == "all" else (what,), length=length or 0, **limits)
    watcher = Watcher()
    try:
        outcome = run.sweep(options.pop("target"), scope, **options, tell=note, watch=partial(sweeps.watch, watcher))
    finally:
        watcher.pause()
    told = sweeps.document(outcome)
    files.write(json_file, jsonreport.as_json(told))
    if json_file != "-":
        show(sweeps.show_sweep, told)
    if outcome.interrupted:
        note(f"interrupted: the same command goes on from {outcome.journal}")
    return outcome.exit_code
