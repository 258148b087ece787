"""How two engines compare, as a comment on a pull request: short, details folded, below the limit of a comment.

Whatever an engine, an adapter or a stored file says stands in code: inline with every sign as an entity, or in a block
whose fence is longer than any in it. So it is no markup, closes nothing, and mentions nobody.
"""

import re
from collections.abc import Iterable, Sequence

from cpbcg_ref.invariants.pictures import printable
from cpbcg_ref.report import diff
from cpbcg_ref.report.diff import DifferenceRow, Document, Row

MARK = "<!-- cpbcg diff -->"  # by which a workflow finds its own comment
MOST, MOST_ABOVE, MOST_BELOW, MOST_INLINE = 60_000, 15_000, 15_000, 160  # characters; a comment has 65,536 at most


def markdown(told: Document) -> str:
    """Head, table of differences, the cases as long as they fit, then what was not compared or is alike."""
    above, below = [*head(told), *table(told)], notes(told)
    room = MOST - len("\n".join(above + below))
    cases = fitting([details(*one, told) for one in diff.by_case(told)], room, "case")
    return "\n".join((*above, *cases, *below)) + "\n"


def fitting(blocks: Sequence[str], room: int, what: str) -> list[str]:
    """Those that fit into so many characters, one after the other, and how many were left out."""
    kept, left_out = [], 0
    for block in blocks:
        if len(block) < room:
            room -= len(block) + 1
            kept.append(block)
        else:
            left_out += 1
    return [
        *kept,
        *([f"\n{diff.counted(left_out, what)} too long for a comment: `--json` has all.\n"] * bool(left_out)),
    ]


def head(told: Document) -> list[str]:
    summary = told["summary"]
    differ, targets = summary["different"], [code(told[side]["target"]) for side in ("a", "b")]
    result = f"{diff.counted(differ, 'function')} differ{'s' * (differ == 1)}" if differ else "no difference found"
    names = " against ".join(code(diff.named(told[side])) for side in ("a", "b"))
    return [MARK, f"### cpbcg diff: {result}", "", f"{names} ({targets[0]} against {targets[1]})", ""]


def table(told: Document) -> list[str]:
    found = diff.by_case(told)
    if not found:
        return []
    labels = " | ".join(code(told[side]["label"]) for side in ("a", "b"))
    rows = []
    for functions, _, own in found:
        first = own["places"][0] if own["places"] else {"place": "", "a": "", "b": ""}
        more = len(own["places"]) - 1
        where = code(first["place"]) + (f", and {diff.counted(more, 'more place')}" if more > 0 else "")
        wrong = diff.violated(own, told)
        cells = (codes(functions), where, code(first["a"]), code(first["b"]), code(wrong) if wrong else "")
        rows.append(f"| {' | '.join(cells)} |")
    heads = [f"| function | smallest difference | {labels} | violated on that case |", "|---|---|---|---|---|"]
    return [*heads, *fitting(rows, MOST_ABOVE, "row"), ""]


def details(functions: Sequence[str], one: Row, found: DifferenceRow, told: Document) -> str:
    picture = "\n".join([*diff.place_lines(found, told), "", *found["picture"].splitlines()])
    parts = [
        f"<details><summary>{codes(functions)}: {code(one['message'])}</summary>\n",
        fenced(picture, "text"),
        f"{diff.caption(found)}:\n",
        fenced(found["example"], "python"),
        fenced(found["reproduce"], "bash"),
        "</details>\n",
    ]
    return "\n".join(parts)


def notes(told: Document) -> list[str]:
    """What broke, what is alike, what was skipped, and how it was compared."""
    broken, skipped = ([one for one in diff.reasons(told) if one[0] == word] for word in ("error", "skip"))
    errors = [f"**Error** in {codes(names)}: {code(why)}\n" for _, why, names in broken]
    lines = fitting(errors, MOST_BELOW, "error")
    quiet = [f"- {codes(names)}: {code(diff.no_difference(one), most=1000)}" for one, names in diff.alike(told)]
    quiet += [f"- {codes(names)} skipped: {code(why)}" for _, why, names in skipped]
    summary = told["summary"]
    if quiet:
        folded = f"{summary['same']} without a difference, {summary['skip']} skipped"
        quiet = fitting(quiet, MOST_BELOW, "line")
        lines += [f"<details><summary>{folded}</summary>\n", *quiet, "\n</details>\n"]
    how = "Cases that both can be asked; exceptions are compared by kind, without message and line."
    ran = f"Profile {code(summary['profile'])}, seed {summary['seed']}, {summary['seconds']:.0f} s."
    return [*lines, f"<sub>{how} {ran}</sub>"]


def codes(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def code(text: str, *, most: int = MOST_INLINE) -> str:
    """Inline code; signs that may mean something are entities: no markup, no cell, no link, and no mention in code."""
    plain = printable(text if len(text) <= most else text[: most - 3] + "...")
    return "<code>" + "".join(one if one.isalnum() or one in " ,-=+" else f"&#{ord(one)};" for one in plain) + "</code>"


def fenced(text: str, language: str) -> str:
    """A block of code whose fence no line of it can close."""
    plain = "\n".join(map(printable, text.splitlines()))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", plain)), default=0))
    return f"{fence}{language}\n{plain}\n{fence}\n"
