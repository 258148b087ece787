"""How hard was looked: per invariant its examples, their rate, why it stopped, and how often each witness came up."""

from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.report.terminal import Printer

RATE = "a second: how fast its cases were made, asked and judged, together with the other invariants asked with them"


def show_statistics(report: Report, printer: Printer) -> None:
    """A section per invariant that was asked; one that was skipped has a reason elsewhere."""
    printer.wrapped(f"statistics ({RATE})", style="bold")
    for one in report.results:
        if one.outcome != "skip":
            show_one(printer, one)
    printer.say()


def show_one(printer: Printer, result: Result) -> None:
    number, rate = result.examples, result.examples_per_second
    searched = f"{number} example{'' if number == 1 else 's'}, {rate:.{0 if rate >= 10 else 1}f} a second"
    printer.wrapped(f"{result.invariant}: {result.outcome}, {searched}; {result.stopped}", indent="  ")
    for name, count in result.witnesses.items():
        printer.say(f"    {share(result.shares.get(name, 0.0)):>6}  {count:>5}  {name}")


def share(part: float) -> str:
    """A witness that came up is never shown as 0 %."""
    return "never" if not part else "< 1 %" if part < 0.01 else f"{part:.0%}".replace("%", " %")
