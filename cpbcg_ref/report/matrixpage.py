"""The matrix as one self-contained page: nothing is loaded, everything can be read without its few lines of script."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.report.matrix import ADVICE, SIGNS, WORST_FIRST, Column, view

TEMPLATES = Path(__file__).parent / "templates"
WORDS = {
    "pass": "no violation in all examples",
    "fail": f"violated, with a smallest case; {ADVICE} where the invariant is only a SHOULD",
    "unwitnessed": "nothing failed, but an interesting case never came up, so nothing is shown",
    "skip": "the engine cannot be asked; the reason stands below",
    "error": "the check broke, or the target could not be had: no verdict",
}


def as_html(found: Mapping[str, Any]) -> str:
    """Of what `matrix.document` returns. What engines and targets are called or say is escaped, and the page allows no
    other script than its own."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    how: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, **how)
    own = {name: Markup((TEMPLATES / f"matrix.{name}.j2").read_text("utf-8")) for name in ("css", "js")}
    policy = {name: allowed(text) for name, text in own.items()}
    told = {"signs": SIGNS, "words": WORDS, "outcomes": WORST_FIRST, "counts": counts, "registry": REGISTRY}
    told |= {"run": found, "view": view(found)}
    return environment.get_template("matrix.html.j2").render(**own, policy=policy, **told)


def allowed(text: str) -> str:
    """The source of a content security policy for exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def counts(column: Column) -> list[str]:
    """Such as ["4 MUST", "1 SHOULD", "1 error"]: what is violated, and what was not judged as it should be."""
    if column.problem:
        return ["error"]
    outcomes = Counter((one["outcome"], one["level"]) for one in column.results.values())
    told = {level: outcomes["fail", level] for level in ("MUST", "SHOULD")}
    told |= {name: outcomes[name, "MUST"] + outcomes[name, "SHOULD"] for name in ("error", "unwitnessed")}
    return [f"{count} {what}" for what, count in told.items() if count] or ["none"]
