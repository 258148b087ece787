"""The answers that are no check, each as a person reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cpbcg_ref.checking.single import capabilities
from cpbcg_ref.engines.targets import ENGINES, released
from cpbcg_ref.invariants.model import Invariant
from cpbcg_ref.report.terminal import COLOURS, Printer


def show_engines(engines: Sequence[Mapping[str, Any]], printer: Printer) -> None:
    rows = [(one["name"], one["installed"] or "-", " ".join(one["pinned"]), " ".join(one["cached"])) for one in engines]
    printer.table(("engine", "installed", "releases of known sha256", "in the cache"), rows)
    printer.say("\nalso: NAME==VERSION, NAME@DIR (an unpacked tree), path/to/file.py:Class, package.module:Class,")
    printer.say("      fault:KEY, variant:KEY (small wrong and right engines, `cpbcg faults --list`)")
    alone = sorted({released(one) for one, engine in ENGINES.items() if engine.tried_on})
    printer.say(f"{', '.join(alone)} is checked as it is installed: it has no releases and no trees here")


def described(one: Invariant) -> dict[str, Any]:
    """An invariant as plain data; `asks`: the capabilities that an engine needs."""
    told = {"id": one.id, "level": one.level, "statement": one.statement}
    asks = sorted({capability for part in one.parts for capability in capabilities(part)})
    witnesses = [name for part in one.parts for name in part.witnesses]
    return told | {"asks": asks, "bugs": list(one.sources), "witnesses": witnesses}


def show_invariants(chosen: Sequence[Mapping[str, Any]], printer: Printer) -> None:
    for one in chosen:
        asks, bugs, witnesses = (", ".join(one[name]) or "none known" for name in ("asks", "bugs", "witnesses"))
        printer.say(f"{one['id']} ({one['level']})", style="bold")
        printer.wrapped(one["statement"], indent="    ", hanging="")
        printer.wrapped(f"asks: {asks}; bugs: {bugs}", indent="    ")
        printer.wrapped(f"witnesses: {witnesses}", indent="    ")
        printer.say()


def show_smoke(lines: Sequence[Mapping[str, str]], printer: Printer) -> None:
    """What is broken stands below the table: there it has room."""
    broken = [line for line in lines if line["state"] == "broken"]
    rows = [(line["state"], line["asked"], "see below" if line in broken else line["text"]) for line in lines]
    printer.table(("state", "asked", "text"), rows)
    for line in broken:
        printer.say()
        printer.finding("BROKEN", line["asked"], line["text"], style=COLOURS["broken"])
    if broken:
        printer.say("\nWhere the engine itself answers so, leave the adapter as it is: cpbcg check judges the engine.")


def show_explain(found: Mapping[str, Any], printer: Printer) -> None:
    printer.table(("rank", "rows"), list(enumerate(found["rows_per_rank"])))
    printer.say(f"\nrequired rows, the same on every rank: {found['required_local_tokens']}\n")
    printer.table(("bucket", "captured rows", "verdict"), [tuple(bucket.values()) for bucket in found["buckets"]])
    printer.say(f"\nchosen: {found['chosen'] or 'none, the batch runs eager'}")
