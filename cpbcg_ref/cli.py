"""The command line: parse, call, render. What is decided here: exit codes, and that nobody sees a traceback unasked."""

import dataclasses
import importlib.metadata
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import filter as matching
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from cpbcg_ref.cases import Deployment, Server
from cpbcg_ref.errors import CpbcgError

PROFILES = ("dev", "ci", "nightly")  # as in checking.profiles, which is slow to import for --help
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
JSON = click.option("--json", "json_file", metavar="FILE", help='Write the result as JSON; "-" is stdout.')


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Bad input is one sentence on stderr and exit code 2; a traceback needs --debug or CPBCG_DEBUG."""
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
        failed(f"error: {type(problem).__name__}: {problem}\nthis is a bug in cpbcg, --debug shows where")


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


def debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["CPBCG_DEBUG"] = "1"


@click.group(context_settings=SETTINGS)
@click.version_option(importlib.metadata.version("cpbcg"), prog_name="cpbcg")
@click.option("--debug", is_flag=True, expose_value=False, callback=debug, help="Show the traceback of an error.")
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
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Check one deployment, described in TOML."
)
@click.option("--allow-unpinned", is_flag=True, help="Fetch a release without a known sha256.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes.  [default: one per core]")
@click.option("--verbose", is_flag=True, help="Name every function of the engine that was executed.")
def check(target: str, json_file: str | None, junit_file: str | None, **options: Any) -> int:
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
    from cpbcg_ref.report import files, jsonreport, junit, terminal

    if json_file == junit_file == "-":
        raise click.UsageError("--json and --junit cannot both go to stdout")
    with files.written(json_file) as json_stream, files.written(junit_file) as junit_stream:
        report = checked(target, **options)
        json_stream.write(jsonreport.as_json(jsonreport.document(report)))
        junit_stream.write(junit.as_junit(report))
    if "-" not in (json_file, junit_file):
        with files.stdout() as stream:
            terminal.show_check(report, stream, verbose=options["verbose"])
    code: int = report.exit_code
    return code


def checked(target: str, *, select: Sequence[str], config: Path | None, strict: bool, **options: Any) -> Any:
    """Run the check under a progress bar; what the deployment leaves open is skipped with a reason."""
    from cpbcg_ref.checking import deployment, results, session
    from cpbcg_ref.report import summary, terminal

    pinned = deployment.read_deployment(config) if config else None
    ids = selected(select)
    skipped = unconfigured(ids, pinned, config)
    if len(skipped) == len(ids):
        raise click.UsageError(f"nothing to check: {next(iter(skipped.values()))}")
    with terminal.progress_bar(sys.stderr) as tell:
        for event in session.check(
            target,
            ids=[name for name in ids if name not in skipped],
            profile=options["profile"],
            seed=options["seed"],
            deployment=pinned,
            allow_unpinned=options["allow_unpinned"],
            workers=options["jobs"],
            tell=note,
        ):
            tell(event)
            if isinstance(event, results.Started):
                started = event
    assert isinstance(event, results.Finished), event
    finished = dataclasses.replace(event, results=with_skipped(event.results, skipped))
    return summary.Report(started=started, finished=finished, strict=strict, about_deployment=pinned is not None)


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


def unconfigured(ids: Sequence[str], pinned: Deployment | None, config: Path | None) -> dict[str, str]:
    """Why some ids cannot be asked: {id: reason}. A table that is not in the file leaves its family open."""
    if pinned is None:
        return {}
    sides = {True: ("[delayer]", pinned.delayer), False: ("[server]", pinned.server)}
    tables = {name: sides[name.startswith("delay.")] for name in ids}
    return {name: f"{config} has no {table}" for name, (table, given) in tables.items() if given is None}


def with_skipped(judged: Sequence[Any], skipped: dict[str, str]) -> tuple[Any, ...]:
    from cpbcg_ref.checking.results import Result
    from cpbcg_ref.invariants import REGISTRY

    rows = [Result(invariant=i, level=REGISTRY[i].level, outcome="skip", message=why) for i, why in skipped.items()]
    order = list(REGISTRY)
    return tuple(sorted([*judged, *rows], key=lambda result: order.index(result.invariant)))


@cli.command(short_help="Tell a broken adapter from a wrong engine.")
@click.argument("target")
@JSON
@click.option("--allow-unpinned", is_flag=True, help="Fetch a release without a known sha256.")
def smoke(target: str, json_file: str | None, allow_unpinned: bool) -> int:
    """Is the adapter of TARGET broken, or is the engine behind it wrong?

    Asks one small question per capability. Says ok, broken (and what to fix) or not offered (and why).
    Exit code 2 if something is broken, else 0.

    \b
    cpbcg smoke path/to/file.py:Engine
    """
    from cpbcg_ref.checking.smoke import smoke as ask
    from cpbcg_ref.engines.targets import resolve
    from cpbcg_ref.report import listings

    lines = ask(resolve(target, allow_unpinned=allow_unpinned, progress=note))
    render(json_file, [dataclasses.asdict(line) for line in lines], listings.show_smoke)
    return 2 if any(line.state == "broken" for line in lines) else 0


@cli.command(short_help="List engines, releases and what is cached.")
@JSON
def engines(json_file: str | None) -> None:
    """List the engines that have a name, their known releases, and what is cached or installed here."""
    from cpbcg_ref.engines.targets import known_engines
    from cpbcg_ref.report import listings

    render(json_file, [dataclasses.asdict(engine) for engine in known_engines()], listings.show_engines)


@cli.command(short_help="Describe the invariants.")
@click.argument("ids", nargs=-1)
@JSON
def invariants(ids: Sequence[str], json_file: str | None) -> None:
    """Describe every invariant, or those of IDS: level, statement, what an engine is asked, public bugs, witnesses.

    \b
    cpbcg invariants delay.agree 'select.*'
    """
    from cpbcg_ref.asking import FAMILIES
    from cpbcg_ref.invariants import REGISTRY
    from cpbcg_ref.report import listings

    chosen = [REGISTRY[name] for name in selected(ids)]
    rows = [
        {
            "invariant": one.id,
            "level": one.level,
            "statement": one.statement,
            "asks": sorted({FAMILIES[part.family].capability for part in one.parts}),
            "bugs": list(one.sources),
            "witnesses": [name for part in one.parts for name in part.witnesses],
        }
        for one in chosen
    ]
    render(json_file, rows, listings.show_invariants)


@cli.command(short_help="Work out one batch on one server.")
@click.option("--cp-size", type=int, required=True, help="Ranks of the context-parallel group.")
@click.option("--lengths", required=True, metavar="L,L,...", help="Extend tokens per request.")
@click.option("--capture", required=True, metavar="B[:ROWS],...", help="Buckets in tokens, with their captured rows.")
@click.option("--context-length", type=int, help="Longest request; gives the rows of buckets named without.")
@click.option("--align", type=int, help="Rows are padded to a multiple of this.  [default: by strategy]")
@click.option("--strategy", default="zigzag", show_default=True, help="zigzag or interleave.")
@click.option("--max-padding-factor", type=float, default=2, show_default=True, help="Largest bucket / tokens.")
@click.option("--min-replay-bucket", type=int, default=0, show_default=True, help="Up to here, any padding is fine.")
@JSON
def explain(lengths: str, capture: str, align: int | None, json_file: str | None, **options: Any) -> None:
    """Work out one batch with the reference: rows per rank, required rows, each bucket's verdict, the choice.

    \b
    cpbcg explain --cp-size 4 --lengths 1534,161,353 --capture 2048:512,2304:576,2560:640 --align 8
    cpbcg explain --cp-size 4 --lengths 9,9,9 --capture 32,48,64 --context-length 64
    """
    from cpbcg_ref.report import explain as report

    batch = [whole("--lengths", length) for length in lengths.split(",")] if lengths.strip() else []
    given = [bucket_and_rows(item) for item in capture.split(",")]
    context = options.pop("context_length")
    if context is None and any(rows is None for _, rows in given):
        raise click.UsageError("--capture names a bucket without rows: give its rows or --context-length")
    ladder = tuple(bucket for bucket, _ in given)
    server = Server(capture_num_tokens=ladder, context_length=1 if context is None else context, **options)
    by_rule = report.captured_rows(server, align=align) if context is not None else {}
    captured = {bucket: by_rule[bucket] if rows is None else rows for bucket, rows in given}
    found = report.explain(batch, server=server, captured=captured, align=align)
    render(json_file, found, report.show_explain)


def bucket_and_rows(item: str) -> tuple[int, int | None]:
    bucket, colon, rows = item.partition(":")
    return whole("--capture", bucket), whole("--capture", rows) if colon else None


def whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text.strip()!r} is not an integer", param_hint=option) from None


def note(line: str) -> None:
    click.echo(line, err=True)


def render(json_file: str | None, data: Any, show: Callable[[Any, TextIO], None]) -> None:
    """The data as JSON; the same for people on stdout, unless stdout carries the JSON."""
    from cpbcg_ref.report import files, jsonreport

    with files.written(json_file) as stream:
        stream.write(jsonreport.as_json(data))
    if json_file != "-":
        with files.stdout() as stream:
            show(data, stream)


if __name__ == "__main__":
    main()
