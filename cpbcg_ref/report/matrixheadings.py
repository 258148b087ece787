"""What stands above the columns of a matrix at a terminal: as much as fits, and what was cut is said."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from string import ascii_lowercase

from cpbcg_ref.report.matrix import Column

GAP = 2  # columns of the terminal between two of the table
NARROW = 2  # a letter and what follows it, where headings do not fit


@dataclass(frozen=True, kw_only=True)
class Titles:
    """What stands above the columns, engines over releases, their widths, and a line for all that was cut."""

    engines: str
    releases: list[str]
    widths: list[int]
    key: list[str]


def titles(columns: Sequence[Column], *, room: int) -> Titles:
    """The longest that fit: all as it is; releases without what they have in common; engines cut too, as long as they
    can be told apart; or letters."""
    groups = [list(group) for _, group in groupby(columns, key=lambda column: column.engine)]
    whole = [[column.version for column in group] for group in groups]
    short = list(map(shortened, whole))
    spare = room + GAP - sum(width(one) for versions in short for one in versions)
    for releases, more in ((whole, sys.maxsize), (short, sys.maxsize), (short, max(0, spare))):
        made = titled(groups, releases, spare=more)
        if sum(made.widths) - GAP <= room and len({line.partition(":")[0] for line in made.key}) == len(made.key):
            return made
    letters = [ascii_lowercase[i % 26] for i in range(len(columns))]
    told = iter(letters)
    key = [f"{group[0].engine}: {', '.join(f'{next(told)} {one.version}' for one in group)}" for group in groups]
    return Titles(engines="", releases=letters, widths=[NARROW] * len(letters), key=key)


def width(heading: str) -> int:
    return max(len(heading), 1) + GAP


def shortened(versions: Sequence[str]) -> list[str]:
    """Without the leading numbers that several have in common.

    >>> shortened(["0.5.16", "0.5.17"]), shortened(["0.1.0"])
    (['16', '17'], ['0.1.0'])
    """
    parts = [version.split(".") for version in versions]
    levels = zip(*(part[:-1] for part in parts), strict=False) if len({*versions}) > 1 else ()
    same = len(list(takewhile(lambda level: len({*level}) == 1, levels)))
    return [".".join(part[same:]) for part in parts]


def titled(groups: Sequence[Sequence[Column]], releases: Sequence[Sequence[str]], *, spare: int) -> Titles:
    """Every engine above its releases, cut to their width and what is spare."""
    engines, widths, key = "", list[int](), list[str]()
    for group, short in zip(groups, releases, strict=True):
        engine, own = group[0].engine, list(map(width, short))
        more = min(spare, max(0, len(engine) + GAP - sum(own)))
        own[-1], spare = own[-1] + more, spare - more
        name = engine[: sum(own) - GAP]
        engines += name.ljust(sum(own))
        widths += own
        key += meaning(name, list(short), group)
    return Titles(engines=engines, releases=[one for short in releases for one in short], widths=widths, key=key)


def meaning(name: str, short: list[str], group: Sequence[Column]) -> list[str]:
    """The line that says what the headings of one engine stand for, none if they are whole."""
    engine, whole = group[0].engine, [column.version for column in group]
    if short != whole:
        return [f"{name} {short[0]} to {short[-1]}: {engine} {whole[0]} to {whole[-1]}"]
    return [f"{name}: {engine}"] if name != engine else []
