"""Hypothesis' own database of failing examples: search state that runs, and machines, of one campaign share.

Only `cpbcg fuzz` reads and writes it. A check never does: its verdict depends on the seed alone.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, MultiplexedDatabase, ReadOnlyDatabase

from cpbcg_ref.checking.saved import state_folder
from cpbcg_ref.errors import CpbcgError

REDIS = ("redis", "rediss", "unix")
ANSWER_WITHIN_S = 5


class DatabaseLost(CpbcgError):
    """The database was there and does not answer any more."""


@contextmanager
def answering() -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # a client has exceptions of its own
        raise DatabaseLost(f"the database does not answer: {type(problem).__name__}: {problem}") from problem


class Under(ExampleDatabase):
    """The examples of one search in a database that many share.

    Hypothesis makes its keys from the source of the function that it calls, and all our searches call the same one.

    >>> from hypothesis.database import InMemoryExampleDatabase
    >>> shared = InMemoryExampleDatabase()
    >>> Under(shared, "toy/select.pure").save(b"key", b"example")
    >>> list(Under(shared, "toy/select.pure").fetch(b"key")), list(Under(shared, "toy/select.minimal").fetch(b"key"))
    ([b'example'], [])
    """

    def __init__(self, shared: ExampleDatabase, name: str) -> None:
        super().__init__()
        self.shared, self.name = shared, f"cpbcg/{name}/".encode()

    def fetch(self, key: bytes) -> Iterable[bytes]:
        with answering():
            return list(self.shared.fetch(self.name + key))

    def save(self, key: bytes, value: bytes) -> None:
        with answering():
            self.shared.save(self.name + key, value)

    def delete(self, key: bytes, value: bytes) -> None:
        with answering():
            self.shared.delete(self.name + key, value)

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        with answering():
            self.shared.move(self.name + src, self.name + dest, value)


def open_database(where: str | None = None, *, ci: Path | None = None) -> ExampleDatabase | None:
    """The database in a folder (the default one if None), on a Redis server, or None for "none".

    ci: the folder of a copy, such as one from CI, that is read too and never changed. Raises CpbcgError in one
    sentence where there is nothing that can be read and written.
    """
    own = None if where == "none" else opened(where or str(state_folder() / "examples"))
    if ci is None:
        return own
    if not ci.is_dir():
        raise CpbcgError(f"there is no folder {ci}: name the copy of a folder that --database was given")
    copy = ReadOnlyDatabase(DirectoryBasedExampleDatabase(ci))
    return MultiplexedDatabase(own, copy) if own else copy


def opened(where: str) -> ExampleDatabase:
    scheme, separator, _ = where.partition("://")
    if not separator:
        return in_folder(Path(where).expanduser())
    if scheme in REDIS:
        return on_server(where)
    raise CpbcgError(f"{scheme}:// is no database: write a folder, none, or {'://, '.join(REDIS)}://")


def in_folder(folder: Path) -> ExampleDatabase:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CpbcgError(
            f"no database in {folder}: {problem.strerror} (--database names another, or none)"
        ) from problem
    if not os.access(folder, os.R_OK | os.W_OK):
        raise CpbcgError(
            f"no database in {folder}: no permission to read and write (--database names another, or none)"
        )
    return DirectoryBasedExampleDatabase(folder)


def on_server(url: str) -> ExampleDatabase:
    """The server is asked once, so that a wrong address is told now and not in the middle of a campaign."""
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis, RedisError
    except ImportError as problem:
        raise CpbcgError("a database on a Redis server needs a package: pip install 'cpbcg[redis]'") from problem
    timeouts: dict[str, Any] = {"socket_connect_timeout": ANSWER_WITHIN_S, "socket_timeout": ANSWER_WITHIN_S}
    try:
        server = Redis.from_url(url, **timeouts)
        server.ping()
    except (RedisError, OSError, ValueError) as problem:
        raise CpbcgError(f"no database at {without_password(url)}: {problem}") from problem
    return RedisExampleDatabase(server)


def without_password(url: str) -> str:
    """For messages.

    >>> without_password("redis://user:secret@host:6379/0")
    'redis://host:6379/0'
    """
    return re.sub("//.*@", "//", url)
