"""`cpbcg smoke`, `engines`, `invariants`, `explain`: what there is, and one batch worked out."""

from collections.abc import Sequence
from typing import Any

import click

from cpbcg_ref.commands.shared import JSON, UNPINNED, deliver, integers, note, selected


@click.command(short_help="Tell a broken adapter from a wrong engine.")
@click.argument("target")
@UNPINNED
@JSON
def smoke(target: str, allow_unpinned: bool, json_file: str | None) -> int:
    """Is the adapter of TARGET broken, or is the engine behind it wrong?

    Asks a few small questions per capability. Says ok, broken (and what to change) or not offered (and why).
    Exit code 2 if something is broken, else 0.

    \b
    cpbcg smoke path/to/file.py:Engine
    """
    from cpbcg_ref.checking.smoke import smoke as ask
    from cpbcg_ref.engines.targets import resolve
    from cpbcg_ref.report import listings

    lines = [line._asdict() for line in ask(resolve(target, allow_unpinned=allow_unpinned, progress=note))]
    deliver(listings.show_smoke, lines, json_file)
    return 2 if any(line["state"] == "broken" for line in lines) else 0


@click.command(short_help="List engines, releases and what is cached.")
@JSON
def engines(json_file: str | None) -> None:
    """List the engines that have a name, their known releases, and what is cached or installed here."""
    from cpbcg_ref.engines.targets import known_engines
    from cpbcg_ref.report import listings

    deliver(listings.show_engines, known_engines(), json_file)


@click.command(short_help="Describe the invariants.")
@click.argument("ids", nargs=-1)
@JSON
def invariants(ids: Sequence[str], json_file: str | None) -> None:
    """Describe every invariant, or those of IDS: level, statement, what an engine is asked, public bugs, witnesses.

    \b
    cpbcg invariants delay.agree 'select.*'
    """
    from cpbcg_ref.invariants import REGISTRY
    from cpbcg_ref.report import listings

    told = [listings.described(REGISTRY[name]) for name in selected(ids)]
    deliver(listings.show_invariants, told, json_file)


@click.command(short_help="Work out one batch on one server.")
@click.option("--cp-size", type=int, required=True, help="Ranks of the context-parallel group.")
@click.option("--lengths", required=True, metavar="L,L,...", help="Extend tokens per request.")
@click.option("--capture", required=True, metavar="B:ROWS,...", help="Buckets in tokens, with their captured rows.")
@click.option("--align", type=int, help="Rows are padded to a multiple of this.  [default: by strategy]")
@click.option("--strategy", default="zigzag", show_default=True, help="zigzag or interleave.")
@JSON
def explain(lengths: str, capture: str, json_file: str | None, **options: Any) -> None:
    """Work out one batch with the reference: rows per rank, required rows, each bucket's verdict, the choice.

    \b
    cpbcg explain --cp-size 4 --lengths 1534,161,353 --capture 2048:512,2304:576,2560:640 --align 8
    """
    from cpbcg_ref.report import explain, listings

    batch = integers("--lengths", lengths, ",") if lengths.strip() else []
    pairs = [integers("--capture", item, ":") for item in capture.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise click.BadParameter("write BUCKET:ROWS,BUCKET:ROWS", param_hint="--capture")
    found = explain.explain(batch, captured=[(bucket, rows) for bucket, rows in pairs], **options)
    deliver(listings.show_explain, found, json_file)
