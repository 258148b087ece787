"""A failing case as a test of the engine's own suite: plain unittest, nothing of this project in it.

One template for each kind of case and invariant, called `KIND.ID.j2`, states what the invariant asks of that case; the
template that it extends holds what such a test needs around it. What a batch owns and which bucket it must get is read
off the oracles when the test is written: the test itself holds numbers.
"""

import textwrap
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.model import Invariant
from cpbcg_ref.report.unittest_facts import FACTS, Call, call

TEMPLATES = Path(__file__).parent / "templates"
WIDTH = 120
ABOUT = """{statement}.

Seen: {message}
{issue}
Smallest case: {case}

Found and shrunk by cpbcg, which wrote this file; nothing of it is needed to run the test. It runs on CPU, in one
process: every rank is an object of its own, and what the ranks would gather is handed to them.
"""


def forms(engine: str) -> list[tuple[str, str]]:
    """(kind of case, invariant) of every test that can be written for this engine."""
    names = (file.name.removesuffix(".j2").split(".", 1) for file in (TEMPLATES / engine).glob("*Case.*.j2"))
    return sorted((kind, invariant) for kind, invariant in names)


def unittest_for(*, engine: str, invariant: str, case: Any, message: str) -> str:
    """The source of a test file that fails where `case` violates `invariant`, as `message` says, and passes elsewhere.

    It imports the engine, torch and the standard library, and needs no GPU and no second process. Raises CpbcgError if
    no such test can be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    kind = type(case).__name__
    if why := no_form(engine, kind, invariant):
        raise CpbcgError(why)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES / engine),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"python": python}
    known = {"case": case, "about": about(REGISTRY[invariant], case, message), "class_name": class_name(invariant)}
    return environment.get_template(f"{kind}.{invariant}.j2").render(known | FACTS[kind](case))


def no_form(engine: str, kind: str, invariant: str) -> str:
    """Why no test can be written, "" if one can."""
    known = forms(engine)
    if not known:
        engines = ", ".join(sorted(folder.name for folder in TEMPLATES.iterdir() if folder.is_dir()))
        return f"no unittest for engine {engine!r}: tests can be written for {engines}"
    if (kind, invariant) not in known:
        there = ", ".join(known_id for known_kind, known_id in known if known_kind == kind)
        return (
            f"no unittest of {engine} for {invariant} with a {kind}: one can be written for {there or 'no such case'}"
        )
    return ""


def about(invariant: Invariant, case: Any, message: str) -> str:
    """The docstring, broken at the line length and safe inside triple quotes."""
    issue = f"Public: {', '.join(invariant.sources)}\n" if invariant.sources else ""
    smallest = one_line(case) if len(one_line(case)) <= 3 * WIDTH else f"a {type(case).__name__}, below"
    text = ABOUT.format(statement=invariant.statement, message=message, issue=issue, case=smallest)
    safe = text.replace("\\", "\\\\").replace('"""', "'''")
    return "\n".join(textwrap.fill(line, WIDTH - 3, break_on_hyphens=False) for line in safe.splitlines())


def class_name(invariant: str) -> str:
    return "".join(word.capitalize() for word in invariant.replace(".", "-").split("-"))


def python(value: Any, indent: int = 0, before: int = 0) -> str:
    """A literal as a formatter leaves it: on one line if it fits there, else one item per line.

    `indent`: of its line; `before`: characters before it on that line.
    """
    flat, (opening, items, closing) = one_line(value), parts(value)
    if not items or indent + before + len(flat) < WIDTH:
        return flat
    lines = [f"{' ' * (indent + 4)}{name}{python(one, indent + 4, len(name))},\n" for name, one in items]
    return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"


def one_line(value: Any) -> str:
    opening, items, closing = parts(value)
    return f"{opening}{', '.join(name + one_line(one) for name, one in items)}{closing}"


def parts(value: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """What a literal begins with, its items with what stands before each, and what it ends with."""
    if isinstance(value, list):
        return "[", [("", one) for one in value], "]"
    if isinstance(value, dict):
        return "{", [(f"{one_line(key)}: ", one) for key, one in value.items()], "}"
    if isinstance(value, tuple):
        return "(", [("", one) for one in value], ",)" if len(value) == 1 else ")"
    if is_dataclass(value) and not isinstance(value, Call):
        value = call(value)
    if isinstance(value, Call):
        return f"{value.name}(", [(f"{name}=", one) for name, one in value.given.items()], ")"
    return f'"{value}"' if type(value) is str else repr(value), [], ""
