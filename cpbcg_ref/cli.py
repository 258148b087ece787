"""The command line: parse, call, render. What is decided here: exit codes, and that nobody sees a traceback unasked."""

import dataclasses
import importlib.metadata
import multiprocessing
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import filter as matching
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from cpbcg_ref.errors import CpbcgError

PROFILES = ("dev", "ci", "nightly")  # as in checking.profiles, which is slow to import for --help
AT_LEAST_1 = click.IntRange(min=1)
JSON = click.option("--json", "json_file", metavar="FILE", help='Write the result as JSON; "-" is stdout.')
note = partial(click.echo, err=True)
UNPINNED = click.option("--allow-unpinned", is_flag=True, help="Fetch a release without a known sha256.")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Bad input is one sentence on stderr and exit code 2; CPBCG_DEBUG=1 adds the traceback."""
    signal.signal(signal.SIGINT, interrupted)
    try:
        sys.exit(cli.main(argv, prog_name="cpbcg", standalone_mode=False) or 0)
    except click.Abort:
        click.echo("\ninterrupted", err=True)
        sys.exit(130)
    except click.ClickException as problem:
        problem.show()
        sys.exit(2)
    except CpbcgError as problem:
        failed(f"error: {problem}")
    except Exception as problem:
        failed(f"error: {type(problem).__name__}: {problem}\nthis is a bug in cpbcg, CPBCG_DEBUG=1 shows where")


def failed(sentence: str) -> NoReturn:
    if os.environ.get("CPBCG_DEBUG"):
        traceback.print_exc()
    click.echo(sentence, err=True)
    sys.exit(2)


def interrupted(*_: Any) -> None:
    """Ctrl-C: end the workers first, or leaving the pool would wait for them. A forked worker inherits this handler."""
    if multiprocessing.parent_process():
        os._exit(130)
    for worker in multiprocessing.active_children():
        worker.terminate()
    raise KeyboardInterrupt


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(importlib.metadata.version("cpbcg"), prog_name="cpbcg")
def cli() -> None:
    """Does an inference engine keep the rules of context-parallel prefill with captured CUDA graphs?

    \b
    cpbcg check                      this project's own reference
    cpbcg check sglang==0.5.17       a published release: fetched, never installed
    cpbcg check sglang@~/sglang      your own branch
    """


@cli.command(short_help="Check an engine and say what it breaks.")
@click.argument("target", default="reference")
@click.option("--profile", type=click.Choice(PROFILES), default="ci", show_default=True, help="How hard to look.")
@click.option("--select", multiple=True, metavar="IDS", help="Only these ids: a,b or family.*; may be repeated.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same verdict.")
@JSON
@click.option("--junit", "junit_file", metavar="FILE", help="Write the result as JUnit XML.")
@click.option("--strict", is_flag=True, help="A violated SHOULD fails the run too.")
@click.option("--config", type=Path, metavar="FILE", help="Check one deployment, described in TOML.")
@UNPINNED
@click.option("--jobs", "workers", type=AT_LEAST_1, metavar="N", help="Worker processes.  [default: one per core]")
def check(target: str, select: Sequence[str], config: Path | None, strict: bool, **options: Any) -> int:
    """Check TARGET against the invariants and say what it breaks, with a smallest case.

    TARGET is reference (the default), sglang, sglang==VERSION, sglang@DIR, path/to/file.py:Class or
    package.module:Class.

    \b
    cpbcg check sglang==0.5.17 --select capacity.no-overflow
    cpbcg check sglang==0.5.23 --config server.toml
    cpbcg check adapter.py:Engine --json - | jq .summary
    cpbcg check --select 'layout.*' --select select.minimal

    Exit code, the first that applies: 2 the target cannot be obtained, or bad usage; 1 a MUST is violated (with
    --strict a SHOULD too); 2 an error; 3 a MUST is unwitnessed (its interesting case never came up); 0.
    """
    from cpbcg_ref.checking import deployment, session
    from cpbcg_ref.report import files, jsonreport, junit, terminal

    json_file, junit_file = options.pop("json_file"), options.pop("junit_file")
    if json_file == junit_file == "-":
        raise click.UsageError("--json and --junit cannot both go to stdout")
    files.check_writable(json_file)
    files.check_writable(junit_file)
    options |= {"ids": selected(select), "deployment": deployment.read_deployment(config) if config else None}
    options["reproduce"] = f" --config {shlex.quote(str(config))}" if config else ""
    options["reproduce"] += " --allow-unpinned" if options["allow_unpinned"] else ""
    with terminal.progress() as progress:
        report = dataclasses.replace(session.check(target, tell=note, progress=progress, **options), strict=strict)
    if (config or not select) and len(report.of("skip")) == len(report.results):
        raise click.UsageError(f"nothing to check: {report.results[0].message}")
    files.write(json_file, jsonreport.as_json(jsonreport.document(report)))
    files.write(junit_file, junit.as_junit(report))
    if "-" not in (json_file, junit_file):
        show(terminal.show_check, report)
    return report.exit_code


def selected(patterns: Iterable[str]) -> list[str]:
    """Ids in the registry's order; a pattern that matches none is a usage error that names the nearest."""
    from cpbcg_ref.invariants import REGISTRY

    wanted = [name.strip() for pattern in patterns for name in pattern.split(",")]
    for name in wanted:
        if not matching(REGISTRY, name):
            near = get_close_matches(name, REGISTRY, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cpbcg invariants` lists them"
            raise click.UsageError(f"no invariant is called {name!r}: {hint}")
    return [name for name in REGISTRY if not wanted or any(matching([name], pattern) for pattern in wanted)]


@cli.command(short_help="Tell a broken adapter from a wrong engine.")
@click.argument("target")
@UNPINNED
@JSON
def smoke(target: str, allow_unpinned: bool, json_file: str | None) -> int:
    """Is the adapter of TARGET broken, or is the engine behind it wrong?

    Asks one small question per capability. Says ok, broken (and what to fix) or not offered (and why).
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


@cli.command(short_help="List engines, releases and what is cached.")
@JSON
def engines(json_file: str | None) -> None:
    """List the engines that have a name, their known releases, and what is cached or installed here."""
    from cpbcg_ref.engines.targets import known_engines
    from cpbcg_ref.report import listings

    deliver(listings.show_engines, known_engines(), json_file)


@cli.command(short_help="Describe the invariants.")
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


@cli.command(short_help="Work out one batch on one server.")
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


if __name__ == "__main__":
    main()
