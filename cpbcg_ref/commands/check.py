"""`cpbcg check`: verdicts on one engine."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cpbcg_ref.commands.shared import FAILURES, JOBS, JSON, PROFILES, SEED, UNPINNED, kept, note, selected, show


@click.command(short_help="Check an engine and say what it breaks.")
@click.argument("target", default="reference")
@click.option("--profile", type=click.Choice(PROFILES), default="ci", show_default=True, help="How hard to look.")
@click.option("--select", multiple=True, metavar="IDS", help="Only these ids: a,b or family.*; may be repeated.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Same seed, same verdict.")
@JSON
@click.option("--junit", "junit_file", metavar="FILE", help="Write the result as JUnit XML.")
@click.option("--strict", is_flag=True, help="A violated SHOULD fails the run too.")
@click.option("--config", type=Path, metavar="FILE", help="Check one deployment, described in TOML.")
@click.option("--known-failures", type=Path, metavar="FILE", help="TOML: failures that do not change the exit code.")
@click.option("--statistics", is_flag=True, help="Say per invariant how hard was looked and why it stopped.")
@FAILURES
@click.option("--no-save", is_flag=True, help="Do not save failures.")
@UNPINNED
@JOBS
def check(
    target: str,
    select: Sequence[str],
    config: Path | None,
    known_failures: Path | None,
    statistics: bool,
    strict: bool,
    failures: Path | None,
    no_save: bool,
    **options: Any,
) -> int:
    """Check TARGET against the invariants and say what it breaks, with a smallest case.

    TARGET is reference (the default), sglang, sglang==VERSION, sglang==LATEST, sglang@DIR, path/to/file.py:Class or
    package.module:Class.

    \b
    cpbcg check sglang==0.5.17 --select capacity.no-overflow
    cpbcg check sglang==0.5.23 --config server.toml
    cpbcg check adapter.py:Engine --json - | jq .summary
    cpbcg check --select 'layout.*' --select select.minimal

    Exit code, the first that applies: 2 the target cannot be obtained, or bad usage; 1 a MUST is violated (with
    --strict a SHOULD too) that --known-failures does not list; 2 an error; 3 a MUST is unwitnessed (its interesting
    case never came up); 0.
    """
    from cpbcg_ref.checking import deployment, known, session
    from cpbcg_ref.engines.targets import exact
    from cpbcg_ref.report import files, jsonreport, junit, terminal
    from cpbcg_ref.report.statistics import show_statistics

    json_file, junit_file = options.pop("json_file"), options.pop("junit_file")
    if json_file == junit_file == "-":
        raise click.UsageError("--json and --junit cannot both go to stdout")
    files.check_writable(json_file)
    files.check_writable(junit_file)
    options |= {"ids": selected(select), "deployment": deployment.read_deployment(config) if config else None}
    options["known_failures"] = known.read_known_failures(known_failures) if known_failures else ()
    options["reproduce"] = f" --config {shlex.quote(str(config))}" if config else ""
    unpinned = " --allow-unpinned" if options["allow_unpinned"] else ""
    options["reproduce"] += unpinned
    target = exact(target, tell=note)
    with terminal.progress() as progress:
        report = dataclasses.replace(session.check(target, tell=note, progress=progress, **options), strict=strict)
    if (config or not select) and len(report.of("skip")) == len(report.results):
        raise click.UsageError(f"nothing to check: {report.results[0].message}")
    report = report if no_save else kept(report, failures, options=unpinned)
    files.write(json_file, jsonreport.as_json(jsonreport.document(report)))
    files.write(junit_file, junit.as_junit(report))
    if "-" not in (json_file, junit_file):
        if statistics:
            show(show_statistics, report)
        show(terminal.show_check, report)
    return report.exit_code
