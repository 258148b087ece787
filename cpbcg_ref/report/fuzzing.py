"""A campaign for people, while it runs and when it is over; and for programs."""

from typing import Any

from cpbcg_ref.checking.campaign import Campaign, Failure
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.report.jsonreport import row
from cpbcg_ref.report.terminal import COLOURS, Printer, show_failure, show_reasons, summary_line
from cpbcg_ref.report.watching import Watcher


def watch(watcher: Watcher, campaign: Campaign) -> None:
    done = min(campaign.seconds, campaign.seconds - campaign.left)
    watcher.see(state(campaign), done=done, total=campaign.seconds)


def state(campaign: Campaign) -> str:
    """Such as "9:30 left, 5,321 examples (166 a second), 70 of 88 witnesses met, 2 invariants violated"."""
    minutes, seconds = divmod(round(max(0.0, campaign.left)), 60)
    rate = campaign.asked / max(campaign.seconds - campaign.left, 1e-9)
    met, demanded = witnesses(campaign)
    asked = f"{minutes}:{seconds:02} left, {campaign.asked:,} examples ({rate:.0f} a second)"
    return f"{asked}, {met} of {demanded} witnesses met, {len(campaign.failures)} invariants violated"


def witnesses(campaign: Campaign) -> tuple[int, int]:
    """Those met, and those that this engine could meet."""
    asked = [run for run in campaign.runs.values() if not run.skipped]
    demanded = sum(len(run.demanded) for run in asked)
    return demanded - sum(len(run.unmet) for run in asked), demanded


def word(result: Result) -> str:
    return "FAIL" if result.level == "MUST" else "ADVICE"


def show_found(failure: Failure, printer: Printer) -> None:
    show_failure(printer, word(failure.result), failure.result)


def show_campaign(campaign: Campaign, printer: Printer) -> None:
    """The table, every failure with its case in short, what was not judged and why, a summary."""
    report = campaign.report()
    printer.say()
    headers = ("invariant", "level", "outcome", "examples", "witnesses", "seconds", "failed in")
    printer.table(headers, [table_row(one, campaign) for one in report.results])
    for one in sorted(report.of("fail"), key=lambda one: one.level != "MUST"):
        show_again(printer, one)
    show_reasons(printer, report)
    printer.say()
    printer.wrapped(summary_line(report), style="bold")
    printer.say(last_line(campaign, report))


def table_row(one: Result, campaign: Campaign) -> tuple[Any, ...]:
    met = f"{sum(map(bool, one.witnesses.values()))} of {len(one.witnesses)}"
    times = campaign.times[one.invariant]
    rounds = f"{times} round{'s' * (times != 1)}" if times else ""
    return one.invariant, one.level, one.outcome, one.examples, met, one.seconds, rounds


def show_again(printer: Printer, one: Result) -> None:
    """Without the picture, which was shown when it was found."""
    assert one.counterexample, "a failure of a campaign has its case"
    printer.say()
    printer.finding(
        word(one), one.invariant, one.message, style=COLOURS["fail" if one.level == "MUST" else "unwitnessed"]
    )
    printer.wrapped(one.counterexample.example, indent="    ")
    printer.say(f"    {one.replay or one.reproduce}")


def last_line(campaign: Campaign, report: Report) -> str:
    rounds, end = sum(campaign.done.values()), "interrupted after" if campaign.interrupted else "in"
    told = f"{campaign.asked:,} examples in {rounds} round{'s' * (rounds != 1)} {end} {report.seconds:.1f} s"
    return f"{told}, seed {report.seed}, exit code {campaign.exit_code}"


def document(campaign: Campaign) -> dict[str, Any]:
    """The campaign as plain data; `found` has the rows of a check's results."""
    report = campaign.report()
    found = [
        row(one) | {"times": campaign.times[one.invariant]} | {"saved": campaign.failures[one.invariant].saved}
        for one in report.of("fail")
    ]
    return {
        "target": {"engine": report.engine, "version": report.version},
        "seconds": round(report.seconds, 3),
        "rounds": sum(campaign.done.values()),
        "examples": campaign.asked,
        "seed": report.seed,
        "interrupted": campaign.interrupted,
        "found": found,
        "errors": {one.invariant: one.message for one in report.of("error")},
        "witnesses": {one.invariant: one.witnesses for one in report.results},
        "exit_code": campaign.exit_code,
    }
