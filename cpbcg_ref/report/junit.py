"""The report for CI dashboards: JUnit XML, one testcase per invariant."""

import re
from collections import Counter
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cpbcg_ref.checking.results import Report

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS = {"fail": "failure", "error": "error", "unwitnessed": "error", "skip": "skipped"}


def as_junit(report: Report) -> str:
    """A testsuite that is red exactly when the check is: a known failure counts as skipped, and unless strict a SHOULD
    that fails."""
    suite, counts = Element("testsuite", name=clean(f"cpbcg check {report.target}")), Counter[str]()
    for one in report.results:
        family, seconds = one.invariant.split(".")[0], f"{one.seconds:.3f}"
        case = SubElement(suite, "testcase", classname=family, name=one.invariant, time=seconds)
        forgiven = ("unwitnessed",) if report.strict else ("unwitnessed", "fail")
        lenient = one.known or (one.level == "SHOULD" and one.outcome in forgiven)
        if kind := "skipped" if lenient else ELEMENTS.get(one.outcome):
            counts[kind] += 1
            why = f"known: {one.reason} ({one.link}): " if one.known else ""
            problem = SubElement(case, kind, type=f"{one.level} {one.outcome}", message=clean(why + one.message))
            found = None if one.known else one.counterexample  # a known one was not shrunk
            problem.text = clean("\n".join([found.picture, found.example, one.reproduce]) if found else one.message)
    failures, errors, skipped = (str(counts[kind]) for kind in ("failure", "error", "skipped"))
    suite.attrib |= {"tests": str(len(report.results)), "failures": failures, "errors": errors, "skipped": skipped}
    suite.set("time", f"{report.seconds:.3f}")
    indent(suite)
    return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def clean(text: str) -> str:
    """Without the control characters that no XML document may carry."""
    return NOT_XML.sub("", text)
