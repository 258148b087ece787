"""What the seeded trials came to: plain data, described by faults.schema.json beside this file, and tables of it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from statistics import median
from typing import Any

from rich.console import Console

from cpbcg_ref.checking import planted
from cpbcg_ref.checking.hunting import Hunt, Trial
from cpbcg_ref.checking.planted import Planted
from cpbcg_ref.checking.trials import Outcome
from cpbcg_ref.faults import FAULTS, VARIANTS, Fault, public
from cpbcg_ref.report.terminal import COLOURS, Printer

RATIO = (1.2, 2.0)  # how much larger than the smallest a shrunk case may be: at the median, and ever
BY_BUCKETS = ("select", "select-pair", "capture")  # a case of one bucket is as small as it gets, whatever is in it

WIDTH = 130  # columns of a file
FAULT = ("fault", "invariant", "caught", "examples", "seconds", "shrunk", "source")
DIFFERENT, VARIANT = "\ndifferent and right:", ("variant", "flagged by")
BLIND = "\nexamples until a selector that is blind to rows overflows a bucket:"
GENERATOR = ("generator", "cp", "ladder", "median", "maximum", "seeds")
FORMS = (("examples", "g"), ("seconds", ".2f"))


def document(outcome: Outcome, *, skipped: str = "") -> dict[str, Any]:
    """A fault's examples and seconds are medians over the trials that caught it, to the first id that did.

    skipped: why no defects were planted in replayed data, if that was asked for.
    """
    faults = [of_fault(key, trials, outcome) for key, trials in outcome.trials.items()]
    variants = [{"key": key, "flagged": list(reasons)} for key, reasons in outcome.flagged.items()]
    told: dict[str, Any] = {"faults": faults, "variants": variants}
    told["trials"] = {key: [of_trial(one, outcome) for one in trials] for key, trials in outcome.trials.items()}
    told["flags"] = {key: reasons for key, reasons in outcome.flagged.items() if reasons}
    told["generators"] = [of_generator(dataclasses.asdict(one)) for one in outcome.generators]
    told |= {"control": controls(outcome.controls), "skipped": skipped}
    return told | {"summary": summary(told, seed=outcome.seed, seconds=round(outcome.seconds, 1))}


def of_fault(key: str, trials: Sequence[Trial], outcome: Outcome) -> dict[str, Any]:
    fault, soonest = entry(key), [trial.soonest for trial in trials]
    by = [name for i, name in enumerate(fault.expected) if all(trial.hunts[i].found for trial in trials)]
    told = {"key": key, "source": fault.source, "expected": list(fault.expected), "caught": all(soonest), "by": by}
    told |= medians([hunt for hunt in soonest if hunt])
    return told | {"shrunk": outcome.shrunk.get((key, outcome.seed)), "smallest": fault.smallest}


def entry(key: str) -> Fault | Planted:
    return FAULTS.get(key) or planted.catalogue()[key]


def medians(hunts: Sequence[Hunt]) -> dict[str, float | None]:
    if not hunts:
        return {"examples": None, "seconds": None}
    examples, seconds = (median(getattr(hunt, name) for hunt in hunts) for name in ("examples", "seconds"))
    return {"examples": examples, "seconds": round(seconds, 4)}


def of_trial(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    ids = {hunt.id: dataclasses.asdict(hunt) | {"seconds": round(hunt.seconds, 4)} for hunt in trial.hunts}
    for told in ids.values():
        del told["id"], told["seed"]
    return {"seed": trial.seed, "ids": ids, "shrunk": outcome.shrunk.get((trial.key, trial.seed)), "error": trial.error}


def of_generator(told: dict[str, Any]) -> dict[str, Any]:
    found = sorted(told["examples"])
    capped = found.count(told["most"])
    return told | {"examples": found, "median": median(found), "maximum": found[-1], "capped": capped}


def controls(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Per right engine: cases that it was asked, and what it violated of what its miniatures must be caught by."""
    told = []
    for engine, of_engine in groupby(sorted(trials, key=lambda trial: trial.key), key=lambda trial: trial.key):
        runs = list(of_engine)
        found = [(hunt.id, f"seed {run.seed}: {hunt.found}") for run in runs for hunt in run.hunts if hunt.found]
        found += [("asking it", f"seed {run.seed}: {run.error}") for run in runs if run.error]
        alarms = [f"{name}, {sentence}" for name, sentence in dict(reversed(found)).items()]  # the first of each
        told.append({"engine": engine, "examples": sum(run.asked for run in runs), "alarms": alarms})
    return told


def summary(told: Mapping[str, Any], **run: Any) -> dict[str, Any]:
    faults, issues = told["faults"], [one for one in told["faults"] if public(one["source"])]
    ratios = [ratio for one in faults for ratio in measured(one, told).values()]
    missed = {one["key"]: [name for name in one["expected"] if name not in one["by"]] for one in faults}
    counts: dict[str, Any] = {"faults": len(faults), "caught": sum(one["caught"] for one in faults)}
    counts |= {"public": len(issues), "public_caught": sum(one["caught"] for one in issues)}
    counts |= {"missed": {key: names for key, names in missed.items() if names}}
    counts |= {"variants": len(told["variants"]), "flagged": sum(bool(one["flagged"]) for one in told["variants"])}
    counts |= {"shrunk": len(ratios), "median_ratio": round(median(ratios), 2) if ratios else None}
    counts |= {"maximum_ratio": round(max(ratios), 2) if ratios else None}
    sized = [one for one in faults if one["smallest"] is not None]
    counts["unshrunk"] = [one["key"] for one in sized if one["caught"] and one["by"] and one["shrunk"] is None]
    return counts | {"exit_code": exit_code(told, counts)} | run


def measured(one: Mapping[str, Any], told: Mapping[str, Any]) -> dict[int, float]:
    """Of each trial that was shrunk, by its seed, how many times the smallest the case is."""
    first, trials = one["expected"][0], [trial for trial in told["trials"][one["key"]] if trial["shrunk"] is not None]
    sized = [trial for trial in trials if trial["ids"][first]["family"] not in BY_BUCKETS]
    return {trial["seed"]: trial["shrunk"] / one["smallest"] for trial in sized}


def exit_code(told: Mapping[str, Any], counts: Mapping[str, Any]) -> int:
    """2: a right engine is not right, so nothing is proved; 1: a fault gets by, or a right variant does not; 0."""
    if any(one["alarms"] for one in told["control"]):
        return 2
    missed = counts["missed"] or counts["caught"] < counts["faults"]
    ratios = (counts["median_ratio"] or 0.0, counts["maximum_ratio"] or 0.0)
    large = any(ratio > most for ratio, most in zip(ratios, RATIO, strict=True))
    return 1 if missed or counts["flagged"] or counts["unshrunk"] or large else 0


def show(told: Mapping[str, Any], printer: Printer) -> None:
    """A row per fault and id, the variants, the generators; what is wrong, and the summary, come last."""
    if not printer.fancy:
        printer.console.width = WIDTH
    tables = [
        ("", FAULT, [row for one in told["faults"] for row in rows(one, told["trials"][one["key"]])]),
        (DIFFERENT, VARIANT, [(one["key"], ", ".join(one["flagged"]) or "nothing") for one in told["variants"]]),
        (BLIND, GENERATOR, [compared(one) for one in told["generators"]]),
    ]
    for title, headers, lines in tables:
        if lines:
            printer.say(title)
            printer.table(headers, lines)
    for sentence in wrongs(told):
        printer.say()
        printer.wrapped(sentence, style=COLOURS["fail"])
    printer.say()
    for sentence in spoken(told):
        printer.wrapped(sentence)


def rows(one: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The first row of a fault has what belongs to all of its ids."""
    shrunk = "-" if one["shrunk"] is None else f"{one['shrunk']}/{one['smallest']}"
    whole = [(one["key"], shrunk, one["source"])] + [("", "", "")] * len(one["expected"])
    found = []
    for name, (key, size, source) in zip(one["expected"], whole, strict=False):
        ends = [trial["ids"][name] for trial in trials if trial["ids"][name]["found"]]
        examples, seconds = (f"{median(end[of] for end in ends):{form}}" if ends else "-" for of, form in FORMS)
        found.append((key, name, f"{len(ends)}/{len(trials)}", examples, seconds, size, source))
    return found


def compared(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where the search was given up, the number is a lower bound."""
    seeds, most, over = len(one["examples"]), one["most"], one["capped"]
    numbers = [f"{'over ' if number >= most else ''}{number:g}" for number in (one["median"], one["maximum"])]
    given_up = f", {over} given up after {most}" if over else ""
    return (one["generator"], one["cp_size"], one["ladder"], *numbers, f"{seeds}{given_up}")


def wrongs(told: Mapping[str, Any]) -> list[str]:
    """What makes the exit code other than 0, a sentence each."""
    said, caught = [], {one["key"]: one["caught"] for one in told["faults"]}
    for key, names in told["summary"]["missed"].items():
        error = next((trial["error"] for trial in told["trials"][key] if trial["error"]), "")
        word = "TOO MUCH CLAIMED" if caught[key] else "NOT CAUGHT"
        said.append(f"{word} {key}: not in every trial by {', '.join(names)}{error and f': {error}'}")
    for key, reasons in told["flags"].items():
        said += [f"FLAGGED {key}: {name} {reason}" for name, reason in reasons.items()]
    for one in told["faults"]:
        ratios = measured(one, told).items()
        said += [
            f"TOO LARGE {one['key']}: seed {n} ends at {r:.3g} times the smallest" for n, r in ratios if r > RATIO[1]
        ]
    said += [f"NOT SHRUNK {key}: its finding did not fail again" for key in told["summary"]["unshrunk"]]
    alarms = [(one["engine"], alarm) for one in told["control"] for alarm in one["alarms"]]
    return said + [f"THE RIGHT ENGINE {engine} FAILS, so nothing is proved: {alarm}" for engine, alarm in alarms]


def spoken(told: Mapping[str, Any]) -> list[str]:
    """The summary in sentences."""
    counts, control = told["summary"], told["control"]
    said = [f"{counts['caught']} of {counts['faults']} faults caught in every trial, "]
    said[0] += f"{counts['public_caught']} of {counts['public']} of those with a public issue"
    if counts["shrunk"]:
        median_ratio, most = counts["median_ratio"], counts["maximum_ratio"]
        allowed = f"allowed are {RATIO[0]} and {RATIO[1]}"
        sized = f"{counts['shrunk']} shrunk cases with tokens, passes or attempts"
        said.append(f"{sized} are {median_ratio} times the smallest at the median, {most} at most ({allowed})")
    said.append(f"{counts['flagged']} of {counts['variants']} different and right engines flagged")
    asked = ", ".join(f"{one['examples']} examples on {one['engine']}" for one in control)
    if told["skipped"]:
        said.append(f"no defects were planted in replayed data: {told['skipped']}")
    found = sum(len(one["alarms"]) for one in control)
    said.append(f"the same runs on the right engines: {asked or 'no examples'}, {found or 'nothing'} found")
    return [*said, f"{counts['seconds']} s, seed {counts['seed']}, exit code {counts['exit_code']}"]


def catalogue(faults: Sequence[str], variants: Sequence[str]) -> dict[str, Any]:
    """The entries as they are written down."""
    told = [(key, entry(key)) for key in faults]
    wrong = [
        {"key": key, "wrong": one.wrong, "source": one.source, "expected": list(one.expected)} for key, one in told
    ]
    return {"faults": wrong, "variants": [{"key": key, "why": VARIANTS[key].why} for key in variants]}


def show_catalogue(told: Mapping[str, Any], printer: Printer) -> None:
    for one in told["faults"]:
        printer.say(one["key"] + (f" ({one['source']})" if one["source"] else ""), style="bold")
        printer.wrapped(f"{one['wrong']}; to be caught by {', '.join(one['expected'])}", indent="    ", hanging="")
    if told["variants"]:
        printer.say("\ndifferent and right:\n")
    for one in told["variants"]:
        printer.say(one["key"], style="bold")
        printer.wrapped(one["why"], indent="    ", hanging="")
    issues = sum(public(one["source"]) for one in told["faults"])
    counts = f"faults: {len(told['faults'])}, with a public issue: {issues}, variants: {len(told['variants'])}"
    printer.say(f"\n{counts}; `cpbcg check fault:KEY` checks one")
    if any(FAULTS.get(one["key"]) is None for one in told["faults"]):
        printer.say("those caught by data.* and so on in ranks in step: `python -m gpu_conformance --plant KEY`")


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A function to tell how many of how many jobs are done; meanwhile shown on stderr if that is a terminal."""
    with Console(stderr=True).status("") as status:
        yield lambda done, total: status.update(f"seeded faults: {done} of {total} jobs")
