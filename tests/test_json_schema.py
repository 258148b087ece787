"""The JSON report keeps the schema that is shipped beside it; the schema refuses what is no report."""

import copy
import json
from importlib import resources

import jsonschema
import pytest
from made_report import made_report

from cpbcg_ref.report.jsonreport import as_json, document

SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("schema.json").read_text())


def valid(report):
    found = json.loads(as_json(report))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_with_every_outcome_keeps_the_schema():
    found = valid(document(made_report()))
    assert found["target"] == {"engine": "sglang", "version": "0.5.17"}
    assert found["summary"] == {
        "pass": 1,
        "fail": 2,
        "error": 1,
        "skip": 2,
        "unwitnessed": 1,
        "must_violated": ["capacity.no-overflow"],
        "should_violated": ["delay.budget"],
        "known": [],
        "exit_code": 1,
        "seconds": 4.2,
        "profile": "ci",
        "seed": 0,
    }
    assert [row["outcome"] for row in found["results"]].count("skip") == 2
    assert set(found["results"][1]["counterexample"]) == {"case", "python", "picture", "example"}
    assert found["results"][1]["examples_per_second"] == 12.4
    assert "deployment" not in found


def test_a_deployments_report_answers_its_questions():
    found = valid(document(made_report(about_deployment=True)))
    assert [entry["question"] for entry in found["deployment"]] == [
        "can this server hang?",
        "can this server overflow?",
        "can this server fail at start?",
        "can this server starve?",
    ]


def edit(path, value):
    def edited(found):
        *parents, last = path
        for key in parents:
            found = found[key]
        if value is None:
            del found[last]
        else:
            found[last] = value

    return edited


@pytest.mark.parametrize(
    "spoil",
    [
        edit(("results", 0, "outcome"), "passed"),
        edit(("results", 0, "level"), "MAY"),
        edit(("results", 0, "invariant"), "Layout Bijection"),
        edit(("results", 0, "examples"), -1),
        edit(("results", 0, "surprise"), 1),
        edit(("results", 0, "counterexample"), {"case": {"kind": "x"}, "python": "", "picture": ""}),
        edit(("results", 1, "counterexample", "case", "kind"), None),
        edit(("results", 1, "reproduce"), ""),
        edit(("results", 1, "message"), ""),
        edit(("results", 1, "witnesses"), {"a": "often"}),
        edit(("results", 1, "shares"), {"a": 1.5}),
        edit(("results", 1, "examples_per_second"), -1),
        edit(("results", 1, "stopped"), None),
        edit(("results", 1, "known"), "yes"),
        edit(("results", 1, "counterexample", "example"), "@given(case=1)"),
        edit(("summary", "exit_code"), 4),
        edit(("summary", "profile"), "mine"),
        edit(("summary", "must_violated"), ["a.b", "a.b"]),
        edit(("summary", "seed"), None),
        edit(("target", "version"), None),
        edit(("executed",), None),
        edit(("deployment",), [{"question": "?", "answer": "perhaps", "why": ""}]),
    ],
)
def test_what_is_no_report_is_refused(spoil):
    found = copy.deepcopy(json.loads(as_json(document(made_report()))))
    spoil(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(found)
