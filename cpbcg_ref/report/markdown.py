"""The matrix as Markdown for GitHub: a table whose red cells lead to a list below it."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpbcg_ref.report.matrix import Cell, view

TEMPLATES = Path(__file__).parent / "templates"


def as_markdown(found: Mapping[str, Any]) -> str:
    """Of what `matrix.document` returns. What engines and targets are called or say is text, never markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    how: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), keep_trailing_newline=True, **how)
    environment.filters |= {"text": text, "fenced": fenced, "cell": cell}
    return environment.get_template("matrix.md.j2").render(run=found, view=view(found))


def text(words: str) -> str:
    """One line in which nothing is markup.

    >>> print(text("a|b *c* <d>"))
    a\\|b \\*c\\* &lt;d&gt;
    """
    line = html.escape(" ".join(words.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", line)


def fenced(words: str, language: str = "text") -> str:
    """A code block, its fence longer than any within."""
    longest = max(map(len, re.findall("`{3,}", words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{words.rstrip()}\n{fence}"


def cell(one: Cell) -> str:
    """A word; a MUST that fails in capitals. What is explained below is a link."""
    word = "**FAIL**" if (one.outcome, one.level) == ("fail", "MUST") else one.outcome
    return f"[{word}](#{one.note.id})" if one.note else word
