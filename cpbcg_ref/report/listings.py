"""The lists that are no check: engines, invariants, the findings of smoke. Each gets the data that --json writes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from cpbcg_ref.report.terminal import COLOURS, Printer

Rows = Sequence[Mapping[str, Any]]
STATES = {"ok": "pass", "broken": "fail", "not offered": "skip"}


def show_engines(engines: Rows, file: TextIO) -> None:
    printer = Printer(file)
    printer.table(("target", "state"), list(targets(engines)))
    printer.say("\nalso: NAME@DIR (an unpacked tree), path/to/file.py:Class, package.module:Class")


def targets(engines: Rows) -> Iterable[tuple[str, str]]:
    for engine in engines:
        if not engine["pinned"]:
            yield engine["name"], "part of cpbcg"
            continue
        yield engine["name"], f"installed: {engine['installed']}" if engine["installed"] else "not installed here"
        for version in engine["pinned"]:
            state = "in the cache" if version in engine["cached"] else "fetched when first asked for"
            yield f"{engine['name']}=={version}", f"known sha256, {state}"


def show_invariants(rows: Rows, file: TextIO) -> None:
    printer = Printer(file)
    for number, row in enumerate(rows):
        if number:
            printer.say()
        printer.say(f"{row['invariant']} ({row['level']})", style="bold")
        printer.wrapped(row["statement"], indent=4, hanging=0)
        for name, values in (("asks", row["asks"]), ("bugs", row["bugs"]), ("witnesses", row["witnesses"])):
            if values:
                printer.wrapped(f"{name}: {('; ' if name == 'witnesses' else ', ').join(values)}", indent=4)


def show_smoke(lines: Rows, file: TextIO) -> None:
    printer = Printer(file)
    for line in lines:
        colon = ": " if line["text"] else ""
        text = f"{line['state']:11}  {line['what']}{colon}{line['text']}"
        printer.wrapped(text, style=COLOURS[STATES[line["state"]]], hanging=13)
