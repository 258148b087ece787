"""`cpbcg diff`: where two engines decide differently."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.commands.fuzz import duration
from cpbcg_ref.commands.shared import AT_LEAST_1, JSON, PROFILES, SEED, UNPINNED, note, show
from cpbcg_ref.errors import InvalidInput


def limit(ctx: click.Context, param: click.Parameter, text: str | None) -> float:
    return duration(ctx, param, text) if text is not None else math.inf


@click.command(short_help="Compare two engines: where do they decide differently?")
@click.argument("targets", nargs=-1, metavar="A B")
@click.option("--profile", type=click.Choice(PROFILES), default="ci", show_default=True, help="How hard to look.")
@click.option("--select", multiple=True, metavar="FUNCTIONS", help="Only these: a,b or replay.*; may be repeated.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Same seed, same differences.")
@click.option("--max-time", "seconds", callback=limit, metavar="TIME", help="50s, 10m: what was found by then.")
@click.option("-n", "workers", type=AT_LEAST_1, metavar="N", help="Pairs of processes.  [default: one per two cores]")
@JSON
@click.option("--markdown", "markdown_file", metavar="FILE", help='A summary for a pull request; "-" is stdout.')
@click.option("--from", "stored", type=Path, metavar="FILE", help="Compare nothing, show what --json has written.")
@UNPINNED
def diff(
    targets: Sequence[str],
    select: Sequence[str],
    json_file: str | None,
    markdown_file: str | None,
    stored: Path | None,
    **options: Any,
) -> int:
    """Search for the smallest case on which targets A and B decide differently, for each of their functions.

    \b
    cpbcg diff sglang==0.5.18 sglang==0.5.19
    cpbcg diff sglang==LATEST sglang@. --markdown summary.md
    cpbcg diff sglang==0.5.21 sglang@. --select 'skewed-passes.*,replay.can_run_graph'

    Cases are those that both engines can be asked. Answers are compared as data. That both raise is no difference if
    the exceptions are of one kind: messages and lines change from release to release.

    Exit code: 0 no difference was found; 1 there is one; 2 an error, or nothing could be compared.
    """
    from cpbcg_ref.report import diff as shown
    from cpbcg_ref.report import diff_markdown, files, jsonreport

    if json_file == markdown_file == "-":
        raise click.UsageError("--json and --markdown cannot both go to stdout")
    if len(targets) != (0 if stored else 2):
        raise click.UsageError("name no target beside --from" if stored else f"name two targets, not {len(targets)}")
    files.check_writable(json_file)
    files.check_writable(markdown_file)
    told = shown.read(stored) if stored else compared(targets, select, **options)
    files.write(json_file, jsonreport.as_json(told))
    files.write(markdown_file, diff_markdown.markdown(told))
    if "-" not in (json_file, markdown_file):
        show(shown.show_diff, told)
    return told["summary"]["exit_code"]


def compared(targets: Sequence[str], select: Sequence[str], **options: Any) -> Any:
    from cpbcg_ref.checking import differing, functions
    from cpbcg_ref.engines.targets import exact
    from cpbcg_ref.report import diff as shown
    from cpbcg_ref.report import terminal

    try:
        ids = functions.functions_like(select) if select else None
    except InvalidInput as problem:
        raise click.UsageError(str(problem)) from problem
    left, right = (exact(target, tell=note) for target in targets)
    with terminal.progress() as progress:
        found = differing.diff(left, right, ids=ids, tell=note, progress=progress, **options)
    return shown.document(found, options=" --allow-unpinned" if options["allow_unpinned"] else "")
