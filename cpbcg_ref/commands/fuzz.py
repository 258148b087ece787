"""`cpbcg fuzz`: search one engine until the time is up."""

import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.commands.shared import AT_LEAST_1, FAILURES, JSON, SEED, UNPINNED, note, selected, show

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def duration(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Seconds, from what a person writes."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text, re.ASCII)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not seconds:
        raise click.BadParameter(f"{text!r} is no time: write 90s, 10m, 2h or a number of seconds above 0")
    return seconds


@click.command(short_help="Search an engine until the time is up.")
@click.argument("target")
@click.option(
    "--max-time", "seconds", callback=duration, metavar="TIME", default="10m", show_default=True, help="90s, 10m, 2h."
)
@click.option("-n", "workers", type=AT_LEAST_1, metavar="N", help="Worker processes.  [default: one per core]")
@click.option("--select", multiple=True, metavar="IDS", help="Only these ids: a,b or family.*; may be repeated.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="The seeds of all rounds come from it.")
@click.option("--config", type=Path, metavar="FILE", help="Search one deployment, described in TOML.")
@click.option("--database", metavar="DIR|URL|none", help="Search state, see above.  [default: per user]")
@click.option("--ci-database", type=Path, metavar="DIR", help="A copy of another database, which is only read.")
@FAILURES
@click.option("--no-save", is_flag=True, help="Do not save failures.")
@JSON
@UNPINNED
def fuzz(select: Sequence[str], config: Path | None, failures: Path | None, no_save: bool, **options: Any) -> int:
    """Search TARGET for violations until the time is up; each is shown once it is shrunk, and saved.

    \b
    cpbcg fuzz sglang==0.5.23 --max-time 10m -n 2
    cpbcg fuzz adapter.py:Engine --select 'delay.*' --max-time 2h
    cpbcg fuzz sglang@. --database redis://host:6379/0     one campaign on several machines

    Failing examples are kept in a database: a folder, a Redis server (redis://, rediss://, unix://; pip install
    'cpbcg[redis]') or none. What failed before, here or on another machine, is tried first. `cpbcg check` never reads
    it: there the same seed gives the same verdict.

    Ctrl-C ends the search and shows what was found so far.

    Exit code, the first that applies: 2 the target or the database cannot be had, or bad usage; 1 a MUST is violated;
    2 an error; 130 it was interrupted before that; 3 a MUST is unwitnessed; 0.
    """
    from cpbcg_ref.checking import deployment, fuzzing, saved
    from cpbcg_ref.engines.targets import exact
    from cpbcg_ref.report import files, jsonreport
    from cpbcg_ref.report import fuzzing as shown
    from cpbcg_ref.report.watching import Watcher

    json_file = options.pop("json_file")
    files.check_writable(json_file)
    unpinned = " --allow-unpinned" if options["allow_unpinned"] else ""
    options["reproduce"] = (f" --config {shlex.quote(str(config))}" if config else "") + unpinned
    options["replay"] = (f" --failures {shlex.quote(str(failures))}" if failures else "") + unpinned
    options["folder"] = None if no_save else failures or saved.failures_folder()
    options["target"] = exact(options["target"], tell=note)
    options |= {"ids": selected(select), "deployment": deployment.read_deployment(config) if config else None}
    watcher = Watcher()

    def announce(failure: Any) -> None:
        watcher.pause()
        if json_file != "-":
            show(shown.show_found, failure)

    try:
        campaign = fuzzing.fuzz(**options, tell=watcher.say, announce=announce, watch=partial(shown.watch, watcher))
    finally:
        watcher.pause()
    files.write(json_file, jsonreport.as_json(shown.document(campaign)))
    if json_file != "-":
        show(shown.show_campaign, campaign)
    return campaign.exit_code
