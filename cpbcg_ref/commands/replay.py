"""`cpbcg replay`: saved failures, asked again."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.commands.shared import FAILURES, JSON, UNPINNED, deliver, note

FORMS = ("example", "unittest", "json")


@click.command(short_help="Ask saved failures again: FIXED or FAILED.")
@click.argument("ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Replay all that are saved: a regression run.")
@click.option("--list", "listing", is_flag=True, help="Show what is saved.")
@click.option("--target", metavar="TARGET", help="Ask this one.  [default: the target of each failure]")
@click.option("--as", "form", type=click.Choice(FORMS), help="Print the case instead of asking it.")
@click.option("--strict", is_flag=True, help="A SHOULD that fails still fails the run too.")
@FAILURES
@JSON
@UNPINNED
def replay(
    ids: Sequence[str], every: bool, listing: bool, form: str | None, failures: Path | None, **options: Any
) -> int:
    """Ask the failures IDS again, on the target they were found on or on another: FIXED, FAILED or ERROR.

    `cpbcg check` saves what fails, a readable JSON file each. An id may be cut short, or be the file itself.

    \b
    cpbcg replay --list
    cpbcg replay 3f9c2ab1
    cpbcg replay 3f9 --target sglang@~/sglang     is it fixed on my branch?
    cpbcg replay --all --target sglang==0.5.23    everything that is saved, on this release
    cpbcg replay 3f9 --as example                 the line that pins it in a Hypothesis test
    cpbcg replay 3f9 --as unittest > test_it.py   a test for the engine's own suite

    Keep failures in your repository as a regression suite:

    \b
    cpbcg check sglang@. --failures tests/failures
    cpbcg replay --all --failures tests/failures --target sglang@.

    Exit code, the first that applies: 1 a MUST (with --strict a SHOULD too) FAILED; 2 an ERROR (target or file cannot
    be had, the engine cannot be asked, the adapter broke) or bad usage; 0.
    """
    from cpbcg_ref.checking import replaying, saved
    from cpbcg_ref.report import files, replays

    if [bool(ids), every, listing].count(True) != 1:
        raise click.UsageError("name the ids of saved failures, or --all; --list shows what is saved")
    if form and (listing or options["json_file"]):
        raise click.UsageError("--as prints to stdout: it goes with ids or --all, not with --list or --json")
    folder = failures or saved.failures_folder()
    named = {path.stem: path for path in (saved.find(name, folder) for name in ids)}
    paths = list(named.values()) or saved.files(folder)
    if not paths and not listing:
        raise click.UsageError(f"no failure is saved in {folder}: there is nothing to replay")
    if form:
        return print_cases(paths, form, options["target"])
    files.check_writable(options["json_file"])
    if not listing:
        return ask_again(paths, **options)
    found, broken = replaying.opened(paths)
    deliver(replays.show_saved, replays.saved_document(folder, found, broken), options["json_file"])
    return replaying.exit_code(broken)


def ask_again(paths: Sequence[Path], *, json_file: str | None, strict: bool, **how: Any) -> int:
    from cpbcg_ref.checking import replaying
    from cpbcg_ref.report import replays

    found, replayed = replaying.opened(paths)
    with replays.progress(len(paths)) as done:
        for one in replaying.replay(found, tell=note, **how):
            replayed.append(one)
            done(len(replayed))
    replayed.sort(key=lambda one: (one.invariant, one.id))
    deliver(replays.show_replays, replays.replays_document(replayed, strict=strict), json_file)
    return replaying.exit_code(replayed, strict=strict)


def print_cases(paths: Sequence[Path], form: str, target: str | None) -> int:
    from cpbcg_ref.report import files

    if form == "unittest" and len(paths) > 1:
        raise click.UsageError("--as unittest writes a whole file: name one failure")
    with files.stdout() as stream:
        for path in paths:
            stream.write(printed(path, form, target).rstrip() + "\n")
    return 0


def printed(path: Path, form: str, target: str | None) -> str:
    """One case as a line, a test or the file; the test is for the engine that `target` names."""
    from cpbcg_ref.checking.saved import read

    failure = read(path)
    if form == "unittest":
        from cpbcg_ref.report.unittests import unittest_for

        told = {"invariant": failure.invariant, "case": failure.case, "message": failure.message}
        return unittest_for(engine=re.split("==|@", target or failure.engine)[0], **told)
    return f"@example(case={failure.python})" if form == "example" else path.read_text("utf-8")
