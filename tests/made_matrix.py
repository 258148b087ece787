"""A finished matrix made by hand: every outcome, a target that could not be had, one that wants to be markup."""

import dataclasses
from datetime import UTC, datetime

from made_report import RESULTS, made_report

from cpbcg_ref.checking.side_by_side import Column, Matrix
from cpbcg_ref.report import matrix

HOSTILE = """<img src=x onerror=alert(1)>'"`|*_[a](http://b)|{{ 7*7 }}</td></script><script>alert(2)</script>"""
COMMAND = "cpbcg matrix --profile ci --seed 0"


def result(number, **changes):
    return dataclasses.replace(RESULTS[number], **changes)


def report(target, results, **changes):
    engine, _, version = target.partition("==")
    return dataclasses.replace(made_report(results=results), target=target, engine=engine, version=version, **changes)


def passing(number):
    nothing = {"message": "", "counterexample": None, "reproduce": ""}
    return result(number, outcome="pass", **nothing)


def again(number, version):
    """The same violation on another release."""
    return result(number, reproduce=RESULTS[number].reproduce.replace("0.5.17", version))


GOOD = tuple(passing(number) for number in range(5)) + RESULTS[5:]
COLUMNS = (
    Column(target="sglang==0.5.17", report=report("sglang==0.5.17", RESULTS)),
    Column(target="other==1", report=report("other==1", GOOD)),
    Column(target="sglang==0.5.18", report=report("sglang==0.5.18", (*GOOD[:4], again(4, "0.5.18"), *GOOD[5:]))),
    Column(target="sglang==9.9", problem="sglang==9.9: no such wheel (does the release exist?)"),
)
NASTY_CASE = dataclasses.replace(RESULTS[1].counterexample, picture=f"{HOSTILE}\n````\n{HOSTILE}", python=HOSTILE)
NASTY = Column(
    target=HOSTILE,
    report=report(
        HOSTILE,
        (
            result(0, outcome="skip", message=HOSTILE),
            result(1, message=HOSTILE, reproduce=f"cpbcg check {HOSTILE}\n```\n<b>", counterexample=NASTY_CASE),
            *GOOD[2:],
        ),
    ),
)


def made_matrix(*columns):
    told = {"profile": "ci", "seed": 0, "seconds": 12.34, "began": datetime(2026, 11, 30, 20, 1, 2, 345, UTC)}
    return Matrix(columns=columns or COLUMNS, **told)


def made_document(*columns):
    return matrix.document(made_matrix(*columns), command=COMMAND)
