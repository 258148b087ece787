"""The command line: parse, call, render. What is decided here: exit codes, and that nobody sees a traceback unasked."""

import importlib.metadata
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from cpbcg_ref.commands.about import engines, explain, invariants, smoke
from cpbcg_ref.commands.check import check
from cpbcg_ref.commands.diff import diff
from cpbcg_ref.commands.faults import faults
from cpbcg_ref.commands.fuzz import fuzz
from cpbcg_ref.commands.ladder import ladder
from cpbcg_ref.commands.matrix import matrix
from cpbcg_ref.commands.prove import prove
from cpbcg_ref.commands.replay import replay
from cpbcg_ref.commands.sweep import sweep
from cpbcg_ref.errors import CpbcgError


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    ending_well(cli, argv, prog_name="cpbcg")


def ending_well(command: click.Command, argv: Sequence[str] | None, *, prog_name: str) -> NoReturn:
    """Run a command. Bad input is one sentence on stderr and exit code 2; CPBCG_DEBUG=1 adds the traceback."""
    signal.signal(signal.SIGINT, interrupted)
    try:
        sys.exit(command.main(argv, prog_name=prog_name, standalone_mode=False) or 0)
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


for command in (check, diff, matrix, prove, ladder, sweep, fuzz, replay, faults, smoke, engines, invariants, explain):
    cli.add_command(command)

if __name__ == "__main__":
    main()
