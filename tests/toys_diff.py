"""Copies of the toy that decide one thing differently each, as targets: `tests/toys_diff.py:ShyGate`."""

import os
import time

import toys_delay
from toys import Toy

from cpbcg_ref.engines.contract import Contract

FILE = __file__


class Right(Toy):
    """Layout and selection alone: its contract is small, so that little is searched."""

    name, version = "toy", "1"
    contract = Contract(cp_sizes=(1, 2, 3, 4))
    unavailable = {"replay": "it starts no server"}  # noqa: RUF012
    roots = (__file__, Toy.roots[0])


class Renamed(Right):
    version = "2"


class ShyGate(Renamed):
    """Wants one token more in the shortest request."""

    def is_cp_active(self, batch, *, cp_size, **how):
        return super().is_cp_active(batch, cp_size=cp_size, **how) and min(batch.lengths) > 2 * cp_size


class StrictlyBelowTwice(Renamed):
    """A bucket of exactly twice the tokens is too large for it."""

    def allowed(self, bucket, *, num_tokens, max_padding_factor, **asked):
        asked |= {"num_tokens": num_tokens, "max_padding_factor": max_padding_factor}
        return super().allowed(bucket, **asked) and bucket != num_tokens * max_padding_factor


class OtherWords(Renamed):
    """Raises the same kind of exception with another message, at another line."""

    def check(self, lengths, cp_size, strategy):
        if strategy == "zigzag" and any(length < 2 * cp_size for length in lengths):
            raise ValueError(f"{min(lengths)} tokens cannot be cut into {2 * cp_size} blocks")
        super().check(lengths, cp_size, strategy)


class OtherKind(Renamed):
    """Raises another kind of exception where a length is negative."""

    def check(self, lengths, cp_size, strategy):
        if any(length < 0 for length in lengths):
            raise IndexError("negative")
        super().check(lengths, cp_size, strategy)


class Servers(Right):
    unavailable = {}  # noqa: RUF012


class NeverStarts(Servers):
    """Captures nothing if the smallest bucket is odd."""

    version = "2"

    def start(self, server):
        if min(server.capture_num_tokens) % 2:
            raise MemoryError("an odd bucket")
        return super().start(server)


class NoServer(Servers):
    def start(self, server):
        raise MemoryError("no bucket")


class Clocks(toys_delay.Toy):
    name, version = "clocks", "1"


class OwnClocks(Clocks):
    """Each rank looks at its own timer alone."""

    version = "2"

    def __init__(self):
        super().__init__(toys_delay.LocalClock)


class Moody(Renamed):
    """Answers every third question differently: to no case twice the same."""

    asked = 0

    def select_replay_bucket(self, **asked):
        Moody.asked += 1
        return None if Moody.asked % 7 == 0 else super().select_replay_bucket(**asked)


class BrokenAdapter(Renamed):
    def logical_rows(self, batch, *, cp_size, strategy):
        return self.no_such_method()

    roots = (Toy.roots[0],)  # so what is raised here is the adapter's


class Dies(Renamed):
    def logical_rows(self, *args, **how):
        os._exit(3)


class Hangs(Renamed):
    def select_replay_bucket(self, **asked):
        time.sleep(600)


class Hostile(Renamed):
    """Says things that are meant for a terminal, a comment and whoever reads it."""

    name = "</code></details><script>alert(1)</script>"
    version = "\x1b]0;owned\x07 | @everyone #1 ```\n# [click](http://evil.example)"

    def check(self, lengths, cp_size, strategy):
        if any(length < 0 for length in lengths):
            raise type("`</summary>|\n@here", (Exception,), {})("```\n# no\n\x1b[2J")
        super().check(lengths, cp_size, strategy)
