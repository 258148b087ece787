"""Proofs as plain data, described by proofs.schema.json beside this file, and for people."""

from typing import Any

from cpbcg_ref.report.terminal import Printer

VERDICTS = ("proved", "refuted", "undecided", "skip")


def document(found: Any) -> dict[str, Any]:
    """`found`: a `cpbcg_ref.proving.run.Proofs`."""
    told = {"target": found.target, "engine": found.engine, "version": found.version}
    told |= {"theorems": [of_theorem(one) for one in found.proved], "executed": list(found.executed)}
    return told | {"seconds": round(found.seconds, 1), "exit_code": found.exit_code}


def of_theorem(one: Any) -> dict[str, Any]:
    """broken, refuted: integers against the theorem, and what the code says. model, shown: the same of its control."""
    theorem = one.theorem
    told = {"name": theorem.name, "statement": theorem.statement, "source": theorem.source, "proved": one.proved}
    told |= {"seconds": one.seconds, "obligations": one.obligations, "broken": one.broken, "refuted": one.refuted}
    told |= {"control": theorem.wrong, "control_refuted": one.control_refuted, "model": one.model, "shown": one.shown}
    return told | {"undecided": one.undecided, "skipped": one.skipped}


def verdict(one: dict[str, Any]) -> str:
    if one["skipped"]:
        return "skip"
    if one["refuted"]:
        return "refuted"
    return "proved" if one["proved"] and one["control_refuted"] else "undecided"


def show(told: dict[str, Any], printer: Printer) -> None:
    printer.say(f"{told['engine']} {told['version']}: proofs for integers of any size")
    printer.say("n: ranks of the CP group, k: requests of a batch, T: their tokens\n")
    rows = [(one["name"], verdict(one), one["obligations"], one["seconds"]) for one in told["theorems"]]
    printer.table(("theorem", "verdict", "steps", "seconds"), rows)
    for one in told["theorems"]:
        show_theorem(printer, one)
    counts = {word: sum(verdict(one) == word for one in told["theorems"]) for word in VERDICTS}
    printer.say("\n" + ", ".join(f"{count} {word}" for word, count in counts.items() if count))


def show_theorem(printer: Printer, one: dict[str, Any]) -> None:
    printer.say(f"\n{one['name']}: {verdict(one)}")
    printer.wrapped(one["statement"], indent="  ", hanging="")
    lines = {"does not hold": one["refuted"], "undecided": one["undecided"], "skipped": one["skipped"]}
    lines["wrong, and refuted"] = f"{one['control']} {one['shown']}" if one["control_refuted"] else ""
    lines["wrong, not refuted"] = "" if one["control_refuted"] or one["skipped"] else one["control"]
    for what, text in lines.items():
        if text:
            printer.wrapped(f"{what}: {text}", indent="  ")
