"""Where reports go: files that appear complete or not at all, and a stdout that may be closed early."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cpbcg_ref.errors import CpbcgError


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """A stream that becomes the file `name` when the block ends well; "-" is stdout, None goes nowhere.

    Raises CpbcgError before the block runs if the file could not be written.
    """
    if name is None or name == "-":
        buffer = io.StringIO()
        yield buffer
        with stdout() as stream:
            stream.write(buffer.getvalue() if name else "")
        return
    path = Path(name).resolve()
    is_device = path.exists() and not path.is_file()  # also a folder, which refuses to be opened
    part = path if is_device else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        file = open(part, "w", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as problem:
        raise CpbcgError(f"cannot write {name}: {problem.strerror}") from problem
    try:
        with file:
            yield file
        if not is_device:
            part.replace(path)
    finally:
        if not is_device:
            part.unlink(missing_ok=True)


@contextmanager
def stdout() -> Iterator[TextIO]:
    """Standard output. A reader that stops reading ends the printing, not the verdict."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an engine's message may hold what the terminal cannot show
    try:
        yield sys.stdout
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
