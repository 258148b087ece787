"""`cpbcg prove`: what holds for all integers, not for those that were tried."""

import importlib.util
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

import click

from cpbcg_ref.commands.shared import JOBS, JSON, UNPINNED, deliver, note, split


@click.command(short_help="Prove theorems for lengths and queues of any size.")
@click.argument("target", default="reference")
@click.option("--select", multiple=True, metavar="NAMES", help="Only these: a,b or selector-*; may be repeated.")
@JSON
@UNPINNED
@JOBS
def prove(target: str, select: Sequence[str], json_file: str | None, **options: Any) -> int:
    """Prove theorems about TARGET with z3, each for unbounded integers.

    TARGET is as for `cpbcg check`. The functions of the reference, or of an engine, are executed on integers without a
    value, every way through their code; where the number of ranks is symbolic too, a closed form is proved. Each
    theorem comes with a slightly wrong statement, which must be refuted; the integers that refute it are put to the
    code.

    \b
    cpbcg prove
    cpbcg prove sglang==0.5.23
    cpbcg prove --select 'selector-*' --json -

    Exit code, the first that applies: 2 the target cannot be obtained, z3 is missing, or bad usage; 1 a theorem does
    not hold, and the code shows it; 2 one is undecided, or its wrong statement was not refuted; 0.
    """
    if importlib.util.find_spec("z3") is None:
        raise click.UsageError("proofs need z3: pip install 'cpbcg[prove]'")
    from cpbcg_ref.proving.run import prove_all
    from cpbcg_ref.report import proofs, terminal

    wanted = split(select) or ["*"]
    with terminal.progress("theorems") as progress:
        found = prove_all(
            target,
            names=lambda name: any(fnmatch(name, pattern) for pattern in wanted),
            progress=progress,
            tell=note,
            **options,
        )
    if not found.proved:
        raise click.UsageError(f"no theorem is called {', '.join(wanted)}: `cpbcg prove --json -` names them all")
    if all(one.skipped for one in found.proved):
        raise click.UsageError(f"nothing to prove: {found.proved[0].skipped}")
    deliver(proofs.show, proofs.document(found), json_file)
    return found.exit_code
