"""What a capture ladder comes to: plain data, described by ladder.schema.json beside this file, and text."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from cpbcg_ref.ladder import Analysis, Fallback, Ladder
from cpbcg_ref.report.terminal import Printer

SEVERAL = 3  # requests of one length that are written out


def document(found: Analysis) -> dict[str, Any]:
    """The analysis as plain data."""
    shape, factor = vars(found.shape), found.max_padding_factor
    told: dict[str, Any] = {**shape, "max_padding_factor": factor, "given": of_ladder(found.given)}
    told |= {"dropped": list(found.dropped), "to_serve": of_totals(found.to_serve)}
    told |= {"fallbacks": [of_fallback(one) for one in found.fallbacks], "always_from": found.always_from}
    told |= {"unservable": [of_totals(one) for one in found.unservable]}
    told |= {"smallest": of_ladder(found.smallest), "extended": of_ladder(found.extended)}
    return told | {"is_smallest": found.is_smallest, "exit_code": int(found.can_fall_back)}


def of_totals(totals: tuple[int, int]) -> dict[str, int]:
    return {"first": totals[0], "last": totals[1]}


def of_ladder(ladder: Ladder) -> dict[str, Any]:
    captured = [{"bucket": bucket, "rows": rows} for bucket, rows in ladder.captured.items()]
    return {"captured": captured, "rows": ladder.rows, "more_rows": ladder.more_rows}


def of_fallback(one: Fallback) -> dict[str, Any]:
    told = of_totals(one.totals) | {"to_serve": one.to_serve, "why": one.why}
    return told | {"batch": list(one.batch), "rows": one.rows, "held": one.held}


def show(told: dict[str, Any], printer: Printer) -> None:
    """What was asked, the totals that can fall back, the ladders that serve all."""
    show_asked(told, printer)
    printer.say()
    rows = [row(one, told["max_padding_factor"]) for one in told["fallbacks"]]
    rows.append((f"{told['always_from']} on", "no", "no bucket has as many tokens", "any", "", ""))
    printer.table(("totals", "serve", "why", "smallest batch", "needs rows", "held"), rows)
    printer.say()
    show_verdict(told, printer)
    show_ladders(told, printer)


def show_asked(told: dict[str, Any], printer: Printer) -> None:
    given, most = told["given"], told["max_requests"]
    limits = f"requests up to {told['context_length']} tokens" + (f", at most {most} of them" if most else "")
    factor = f"padding up to {told['max_padding_factor']:g}x"
    printer.say(f"cp {told['cp_size']}, {told['strategy']}, {limits}, {factor}")
    printer.say(f"captured: {len(given['captured'])} buckets, {given['rows']} rows")
    if told["dropped"]:
        printer.wrapped(f"not captured, no split of it can be sharded: {joined(told['dropped'])}")


def row(one: dict[str, Any], factor: float) -> tuple[str, ...]:
    why = {"tokens": f"no bucket within {factor:g}x", "rows": "too few rows"}[one["why"]]
    held = "" if one["held"] is None else str(one["held"])
    return (span(one), "yes" if one["to_serve"] else "no", why, batch(one["batch"]), str(one["rows"]), held)


def batch(lengths: Iterable[int]) -> str:
    """Such as 9,9,9 or 20 x 9, 17."""
    runs = [(length, len([*run])) for length, run in groupby(lengths)]
    if all(many <= SEVERAL for _, many in runs):
        return ",".join(str(length) for length, many in runs for _ in range(many))
    return ", ".join(f"{many} x {length}" if many > 1 else str(length) for length, many in runs)


def span(one: dict[str, int]) -> str:
    return str(one["first"]) if one["first"] == one["last"] else f"{one['first']} to {one['last']}"


def joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def show_verdict(told: dict[str, Any], printer: Printer) -> None:
    falling = sum(one["last"] - one["first"] + 1 for one in told["fallbacks"] if one["to_serve"])
    verdict = f"{falling} can fall back" if falling else "none can fall back"
    style = "bold red" if falling else "green"
    printer.say(f"totals to serve, {span(told['to_serve'])}: {verdict}", style=style)
    if told["unservable"]:
        ranges = ", ".join(map(span, told["unservable"]))
        printer.wrapped(f"whatever is captured, as no bucket within the padding has the rows: {ranges}")


def show_ladders(told: dict[str, Any], printer: Printer) -> None:
    """What to add comes first: it keeps the padding small that the given ladder has."""
    given = [one["bucket"] for one in told["given"]["captured"]]
    added = [one["bucket"] for one in told["extended"]["captured"] if one["bucket"] not in given]
    if added:
        printer.wrapped(f"add {buckets(added)}, {cost(told['extended'])}: {joined(added)}")
    fewest = [one["bucket"] for one in told["smallest"]["captured"]]
    which = "the smallest ladder" if told["is_smallest"] else "a small ladder"
    which += " for the others" if told["unservable"] else " for them"
    printer.wrapped(f"{which} has {buckets(fewest)}, {cost(told['smallest'])}: {joined(fewest)}")


def buckets(some: list[int]) -> str:
    return f"{len(some)} bucket{'s' * (len(some) != 1)}"


def cost(ladder: dict[str, Any]) -> str:
    more = ladder["more_rows"]
    return f"{ladder['rows']} rows in all ({abs(more)} {'more' if more >= 0 else 'fewer'} than given)"
