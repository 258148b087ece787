"""What several commands share: common options, ids by pattern, output for people or for programs."""

import re
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.errors import InvalidInput

PROFILES = ("dev", "ci", "nightly")  # as in checking.profiles, which is slow to import for --help
AT_LEAST_1 = click.IntRange(min=1)
JSON = click.option("--json", "json_file", metavar="FILE", help='Write the result as JSON; "-" is stdout.')
note = partial(click.echo, err=True)
UNPINNED = click.option("--allow-unpinned", is_flag=True, help="Fetch a release without a known sha256.")
FAILURES = click.option(
    "--failures", type=click.Path(path_type=Path), metavar="DIR", help="Folder of saved failures.  [default: per user]"
)
SEED = click.IntRange(min=0)
JOBS = click.option(
    "--jobs", "workers", type=AT_LEAST_1, metavar="N", help="Worker processes.  [default: one per core]"
)


def kept(report: Any, failures: Path | None, *, options: str = "") -> Any:
    """The report, its failures saved. A folder that cannot be written spoils no verdict."""
    from cpbcg_ref.checking import saved

    options = (f" --failures {shlex.quote(str(failures))}" if failures else "") + options
    try:
        return saved.keep(report, failures or saved.failures_folder(), options=options)
    except (OSError, InvalidInput) as problem:
        note(f"failures were not saved: {problem} (--failures DIR names a folder, --no-save leaves them)")
        return report


def selected(patterns: Iterable[str]) -> list[str]:
    """Ids in the registry's order, all without a pattern; one that matches none is a usage error."""
    from cpbcg_ref.invariants import REGISTRY, ids_like

    wanted = list(patterns)
    try:
        return ids_like(wanted) if wanted else list(REGISTRY)
    except InvalidInput as problem:
        raise click.UsageError(str(problem)) from problem


def split(patterns: Iterable[str]) -> list[str]:
    return [name.strip() for pattern in patterns for name in pattern.split(",")]


def integers(option: str, text: str, separator: str) -> list[int]:
    words = text.split(separator)
    if wrong := [word for word in words if not re.fullmatch(r"\s*-?\d+\s*", word)]:
        raise click.BadParameter(f"{wrong[0].strip()!r} is not an integer", param_hint=option)
    return list(map(int, words))


def deliver(how: Callable[[Any, Any], None], what: Any, json_file: str | None) -> None:
    """As JSON where that is asked for; for people too, unless stdout is taken."""
    from cpbcg_ref.report import files, jsonreport

    files.check_writable(json_file)
    files.write(json_file, jsonreport.as_json(what))
    if json_file != "-":
        show(how, what)


def show(how: Callable[[Any, Any], None], what: Any) -> None:
    """For people, on stdout."""
    from cpbcg_ref.report import files, terminal

    with files.stdout() as stream:
        how(what, terminal.Printer(stream))
