"""The answers that are no check, each as a person reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking.smoke import Line
from cpbcg_ref.engines.targets import Known
from cpbcg_ref.invariants.model import Invariant
from cpbcg_ref.report.terminal import Printer


def show_engines(engines: Sequence[Known], printer: Printer) -> None:
    rows = []
    for engine in engines:
        here = f"installed: {engine.installed}" if engine.installed else "not installed here"
        rows.append((engine.name, here if engine.pinned else "part of cpbcg"))
        for version in engine.pinned:
            state = "in the cache" if version in engine.cached else "fetched when first asked for"
            rows.append((f"{engine.name}=={version}", f"known sha256, {state}"))
    printer.table(("target", "state"), rows)
    printer.say("\nalso: NAME@DIR (an unpacked tree), path/to/file.py:Class, package.module:Class")


def show_invariants(chosen: Sequence[Invariant], printer: Printer) -> None:
    for one in chosen:
        asks = {FAMILIES[part.family].capability for part in one.parts}
        facts = {
            "asks": sorted(asks),
            "bugs": one.sources,
            "witnesses": [w for part in one.parts for w in part.witnesses],
        }
        printer.say(f"{one.id} ({one.level})", style="bold")
        printer.wrapped(one.statement, indent="    ", hanging="")
        for name, values in facts.items():
            if values:
                printer.wrapped(f"{name}: {', '.join(values)}", indent="    ")
        printer.say()


def show_smoke(lines: Sequence[Line], printer: Printer) -> None:
    printer.table(Line._fields, lines)


def show_explain(found: Mapping[str, Any], printer: Printer) -> None:
    printer.table(("rank", "rows"), list(enumerate(found["rows_per_rank"])))
    printer.say(f"\nrequired rows, the same on every rank: {found['required_local_tokens']}\n")
    printer.table(("bucket", "captured rows", "verdict"), [tuple(bucket.values()) for bucket in found["buckets"]])
    printer.say(f"\nchosen: {found['chosen'] or 'none, the batch runs eager'}")
