"""Where reports go: a file, or a stdout that may be closed early."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cpbcg_ref.errors import CpbcgError


def check_writable(name: str | None) -> None:
    """Raises CpbcgError before a long check that could not be written down. "-" is stdout, None nowhere."""
    path = Path(name or "-")
    if path.is_dir():
        raise CpbcgError(f"cannot write {name}: it is a folder")
    if name not in (None, "-") and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CpbcgError(f"cannot write {name}: no permission, or no such folder")


def write(name: str | None, text: str) -> None:
    if name == "-":
        with stdout() as stream:
            stream.write(text)
    elif name:
        Path(name).write_text(text, encoding="utf-8")


@contextmanager
def stdout() -> Iterator[TextIO]:
    """Standard output. A reader that stops reading ends the printing, not the verdict."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an engine's message may hold what the terminal cannot show
    if sys.stdout is None:  # closed before the start: there is nobody to tell
        with Path(os.devnull).open("w") as nowhere:
            yield nowhere
        return
    try:
        yield sys.stdout
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CpbcgError(f"cannot write to stdout: {problem.strerror}") from problem
