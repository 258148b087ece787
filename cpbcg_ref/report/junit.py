"""The report for CI dashboards: JUnit XML, one testcase per invariant."""

import re
from xml.etree import ElementTree

from cpbcg_ref.checking.results import Result
from cpbcg_ref.report.summary import Report

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> str:
    """A testsuite that is red exactly when the check is: a SHOULD that fails is skipped with advice unless strict."""
    started = report.started
    suite = ElementTree.Element("testsuite", name=clean(f"cpbcg check {started.target}"))
    suite.set("tests", str(len(report.results)))
    suite.set("time", f"{report.finished.seconds:.3f}")
    facts = {"engine": started.engine, "version": started.version, "profile": started.profile, "seed": started.seed}
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=clean(str(value)))
    kinds = [add_testcase(suite, result, strict=report.strict) for result in report.results]
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(kinds.count(kind)))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def add_testcase(suite: ElementTree.Element, result: Result, *, strict: bool) -> str:
    case = ElementTree.SubElement(suite, "testcase", classname=result.invariant.split(".")[0], name=result.invariant)
    case.set("time", f"{result.seconds:.3f}")
    kind = element(result, strict=strict)
    if kind:
        advice = "advice: " if result.outcome == "fail" and kind == "skipped" else ""
        problem = ElementTree.SubElement(case, kind, message=clean(advice + result.message))
        problem.set("type", f"{result.level} {result.outcome}")
        problem.text = clean(details(result))
    return kind


def element(result: Result, *, strict: bool) -> str:
    counts = result.level == "MUST" or (strict and result.outcome == "fail")
    kinds = {"fail": "failure", "unwitnessed": "error"} if counts else {"fail": "skipped", "unwitnessed": "skipped"}
    return (kinds | {"error": "error", "skip": "skipped"}).get(result.outcome, "")


def details(result: Result) -> str:
    found = result.counterexample
    return "\n".join([result.message, *([found.picture, found.python, result.reproduce] if found else [])])


def clean(text: str) -> str:
    """Without the control characters that no XML document may carry."""
    return NOT_XML.sub("", text)
