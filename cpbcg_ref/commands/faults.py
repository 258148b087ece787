"""`cpbcg faults`: is every deliberately wrong engine caught, and no right one flagged."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import filter as matching
from typing import Any

import click

from cpbcg_ref.commands.shared import AT_LEAST_1, JOBS, JSON, SEED, show, split


@click.command(short_help="Does the suite catch engines that are wrong on purpose?")
@click.option("--select", multiple=True, metavar="KEYS", help="Only these: a,b or timer-*; may be repeated.")
@click.option("--list", "only_list", is_flag=True, help="List the catalogue and run nothing.")
@click.option("--trials", type=AT_LEAST_1, default=10, show_default=True, help="Seeded searches per fault.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the first trial; the next has the next.")
@click.option("--shrink-all", is_flag=True, help="Shrink the finding of every trial, not of the first alone.")
@JOBS
@JSON
def faults(select: Sequence[str], only_list: bool, json_file: str | None, **options: Any) -> int:
    """Search small engines that are wrong on purpose, and check small ones that are different and right.

    A fault is caught if every trial catches it within 60 s, by an invariant that its entry names. The engine that it
    was made from is asked the same cases and must violate nothing. If torch is installed, defects are planted in
    replayed data too, and batches served until each is caught. Without --select, beside it: what the generators are
    worth.

    \b
    cpbcg faults --select overflow
    cpbcg faults --select 'timer-*' --trials 3
    cpbcg check fault:overflow

    Exit code, the first that applies: 2 an unchanged engine fails, or bad usage; 1 a fault is not caught by all that
    its entry names or shrinks to more than twice the smallest case, or a right engine is flagged; 0.
    """
    from cpbcg_ref.checking import planted, trials
    from cpbcg_ref.faults import FAULTS, VARIANTS
    from cpbcg_ref.report import faulttable, files, jsonreport

    plants = {} if named(select, {*FAULTS, *VARIANTS}) else planted.catalogue()  # which imports torch
    keys = chosen(select, [*FAULTS, *VARIANTS, *plants], lacking=planted.unavailable())
    wrong, right, data = ([key for key in catalogue if key in keys] for catalogue in (FAULTS, VARIANTS, plants))
    files.check_writable(json_file)
    if only_list:
        found, how = faulttable.catalogue([*wrong, *data], right), faulttable.show_catalogue
    else:
        with faulttable.progress() as options["progress"]:
            outcome = trials.run(wrong, right, data, compare_generators=not select, **options)
        found, how = faulttable.document(outcome, skipped="" if select else planted.unavailable()), faulttable.show
    files.write(json_file, jsonreport.as_json(found))
    if json_file != "-":
        show(how, found)
    return 0 if only_list else found["summary"]["exit_code"]


def named(patterns: Sequence[str], keys: Collection[str]) -> bool:
    """Is each of these a key, and no pattern that may match others."""
    return bool(patterns) and set(split(patterns)) <= set(keys)


def chosen(patterns: Sequence[str], keys: Sequence[str], *, lacking: str = "") -> set[str]:
    """Keys that match; a pattern that matches none is a usage error that names the nearest.

    lacking: why defects that are planted in replayed data are not among them.
    """
    wanted = split(patterns) or ["*"]
    for name in wanted:
        if not matching(keys, name):
            near = get_close_matches(name, keys, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cpbcg faults --list` lists them"
            absent = f"; planted defects are missing here: {lacking}" if lacking else ""
            raise click.UsageError(f"no fault or variant is called {name!r}: {hint}{absent}")
    return {key for name in wanted for key in matching(keys, name)}
