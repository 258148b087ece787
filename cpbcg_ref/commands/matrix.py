"""`cpbcg matrix`: verdicts on many targets beside each other."""

import shlex
from collections.abc import Sequence
from typing import Any

import click

from cpbcg_ref.commands.shared import AT_LEAST_1, JSON, PROFILES, SEED, UNPINNED, selected, show


@click.command(short_help="Check many engines and releases side by side.")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--html", "html_file", metavar="FILE", help="Write one self-contained page.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write a table for GitHub.")
@JSON
@click.option("--badges", metavar="DIR", help="Write a shields.io endpoint per target into this folder.")
@click.option("--profile", type=click.Choice(PROFILES), default="ci", show_default=True, help="How hard to look.")
@click.option("--select", multiple=True, metavar="IDS", help="Only these ids: a,b or family.*; may be repeated.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Same seed, same verdicts.")
@click.option("-n", "workers", type=AT_LEAST_1, metavar="N", help="Targets at a time.  [default: one per core]")
@UNPINNED
def matrix(targets: Sequence[str], select: Sequence[str], badges: str | None, **options: Any) -> int:
    """Check every TARGET, each in a process of its own, and show invariants x engines and releases.

    Without TARGET: the references, every release with a known sha256, and every installed engine that has no such
    release; wheels that are not in the cache are fetched. vLLM's are large: they are taken only if they are named or in
    the cache already. `cpbcg engines` lists them all.

    \b
    cpbcg matrix --html matrix.html
    cpbcg matrix sglang==0.5.22 sglang==0.5.23 sglang@. --markdown -
    cpbcg matrix --select 'delay.*' reference reference:hardened

    A target that cannot be had or breaks is one error in its column; the others still run. FILE "-" is stdout.

    Exit code, the first that applies: 2 bad usage; 1 a target violates a MUST; 2 a target could not be had, or an error
    in one; 3 a MUST is unwitnessed (its interesting case never came up); 0.
    """
    from cpbcg_ref.checking import side_by_side
    from cpbcg_ref.report import badges as shields
    from cpbcg_ref.report import files, jsonreport, markdown, matrixpage, matrixtable
    from cpbcg_ref.report.matrix import document

    forms = {"json": jsonreport.as_json, "html": matrixpage.as_html, "markdown": markdown.as_markdown}
    outputs = {form: options.pop(f"{form}_file") for form in forms}
    if [*outputs.values()].count("-") > 1:
        raise click.UsageError("--json, --html and --markdown: only one of them can go to stdout")
    for file in outputs.values():
        files.check_writable(file)
    shields.check_folder(badges)
    names, ids = list(dict.fromkeys(targets or side_by_side.shipped())), selected(select)
    watcher = matrixtable.Watcher(len(names))
    unpinned = " --allow-unpinned" if options["allow_unpinned"] else ""
    try:
        made = side_by_side.check_all(names, watch=watcher, ids=ids, reproduce=unpinned, **options)
    finally:
        watcher.stop()
    found = document(made, command=command(names, select, made) + unpinned)
    for form, file in outputs.items():
        files.write(file, forms[form](found) if file else "")
    shields.write(badges, found)
    if "-" not in outputs.values():
        show(matrixtable.show, found)
    return made.exit_code


def command(names: Sequence[str], select: Sequence[str], made: Any) -> str:
    """What makes the same verdicts again."""
    only = [word for pattern in select for word in ("--select", pattern)]
    return shlex.join(["cpbcg", "matrix", *names, *only, "--profile", made.profile, "--seed", str(made.seed)])
