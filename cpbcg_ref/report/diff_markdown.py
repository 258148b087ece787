"""How two engines compare, as a comment on a pull request: short, details folded, below the limit of a comment.

Whatever an engine, an adapter or a stored file says stands in code: inline with every sign as an entity, or in a block
whose fence is longer than any in it. So it is no markup, closes nothing, and mentions nobody.
"""

import re
from collections.abc import Iterable

from cpbcg_ref.invariants.pictures import printable
from cpbcg_ref.report import diff
from cpbcg_ref.report.diff import DifferenceRow, Document, Row

MARK = "<!-- cpbcg diff -->"  # by which a workflow finds its own comment
MOST, MOST_ROWS, MOST_INLINE = 60_000, 40, 160  # characters of a comment (65,536 are allowed), rows, characters


def markdown(told: Document) -> str:
    """Head, table of differences, the cases as long as they fit, then what was not compared or is alike."""
    above, below = [*head(told), *table(told)], notes(told)
    room, cases, left_out = MOST - len("\n".join(above + below)), [], 0
    for one, found in diff.differences(told):
        block = details(one, found, told)
        if len(block) < room:
            room -= len(block) + 1
            cases.append(block)
        else:
            left_out += 1
    if left_out:
        cases.append(f"{diff.counted(left_out, 'case')} too long for a comment: `--json` has all of them.\n")
    return "\n".join((*above, *cases, *below)) + "\n"


def head(told: Document) -> list[str]:
    summary = told["summary"]
    differ, targets = summary["different"], [code(told[side]["target"]) for side in ("a", "b")]
    result = f"{diff.counted(differ, 'function')} differ{'s' * (differ == 1)}" if differ else "no difference found"
    names = " against ".join(code(diff.named(told[side])) for side in ("a", "b"))
    return [MARK, f"### cpbcg diff: {result}", "", f"{names} ({targets[0]} against {targets[1]})", ""]


def table(told: Document) -> list[str]:
    found = diff.differences(told)
    if not found:
        return []
    labels = " | ".join(code(told[side]["label"]) for side in ("a", "b"))
    rows = [f"| function | smallest difference | {labels} | violated on that case |", "|---|---|---|---|---|"]
    for one, own in found[:MOST_ROWS]:
        first = own["places"][0] if own["places"] else {"place": "", "a": "", "b": ""}
        more = len(own["places"]) - 1
        where = code(first["place"]) + (f", and {diff.counted(more, 'more place')}" if more > 0 else "")
        wrong = diff.violated(own, told)
        cells = (code(one["function"]), where, code(first["a"]), code(first["b"]), code(wrong) if wrong else "")
        rows.append(f"| {' | '.join(cells)} |")
    rest = len(found) - MOST_ROWS
    return [*rows, *([f"\nand {diff.counted(rest, 'more function')}"] if rest > 0 else []), ""]


def details(one: Row, found: DifferenceRow, told: Document) -> str:
    picture = "\n".join([*diff.place_lines(found, told), "", *found["picture"].splitlines()])
    parts = [
        f"<details><summary>{code(one['function'])}: {code(one['message'])}</summary>\n",
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
    lines = [f"**Error** in {codes(names)}: {code(why)}\n" for _, why, names in broken]
    quiet = [f"- {codes(names)}: {code(diff.no_difference(one), most=1000)}" for one, names in diff.alike(told)]
    quiet += [f"- {codes(names)} skipped: {code(why)}" for _, why, names in skipped]
    summary = told["summary"]
    if quiet:
        folded = f"{summary['same']} without a difference, {summary['skip']} skipped"
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
