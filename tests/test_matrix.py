"""The matrix as data, as a table at a terminal and as badges: made by hand, no engine is asked."""

import copy
import dataclasses
import io
import json
import re
from importlib import resources

import jsonschema
import pytest
from made_matrix import COLUMNS, GOOD, HOSTILE, NASTY, made_document, made_matrix, report, result
from referencing import Registry, Resource

from cpbcg_ref.checking import side_by_side
from cpbcg_ref.checking.side_by_side import Column
from cpbcg_ref.engines import targets
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.report import badges, jsonreport, matrixtable
from cpbcg_ref.report.matrix import view
from cpbcg_ref.report.terminal import Printer

SCHEMAS = {
    name: json.loads(resources.files("cpbcg_ref.report").joinpath(name).read_text())
    for name in ("schema.json", "matrix.schema.json")
}
REFERRED = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMAS["matrix.schema.json"], registry=REFERRED)

TABLE = """\
                      sglang               other
                      0.5.17  0.5.18  9.9  1
------------------------------------------------
layout.bijection      .       .       E    .
------------------------------------------------
capacity.no-overflow  F       .       E    .
------------------------------------------------
select.minimal        ?       .       E    .
------------------------------------------------
replay.safe-fallback  E       .       E    .
------------------------------------------------
delay.budget          f       f       E    .
------------------------------------------------
data.history-free     -       -       E    -
data.in-bounds        -       -       E    -

. pass  F a MUST is violated  f a SHOULD is violated  ? unwitnessed  - skip  E error

FAIL capacity.no-overflow: 16 live rows on rank 0 but 8 captured in bucket 27
    for lengths [9, 9, 9]: the simplest overflow
    sglang 0.5.17
    cpbcg check sglang==0.5.17 --select capacity.no-overflow --profile ci --seed 0

ADVICE delay.budget: rank 1 waited 12 passes
    sglang 0.5.17, 0.5.18
    cpbcg check sglang==0.5.17 --select delay.budget --profile ci --seed 0

ERROR sglang==9.9: sglang==9.9: no such wheel (does the release exist?)

ERROR replay.safe-fallback: KeyError: 'cp'
    sglang 0.5.17

UNWITNESSED select.minimal: never came up in 400 examples: a smaller bucket
    holds the tokens but not the rows
    sglang 0.5.17

SKIP data.history-free, data.in-bounds: the adapter has no replay_data
    sglang 0.5.17, 0.5.18

SKIP data.history-free, data.in-bounds: the adapter has no replay_data
    other 1

"""


def shown(found, columns=80):
    file = io.StringIO()
    printer = Printer(file)
    printer.console.width = columns
    matrixtable.show(found, printer)
    return file.getvalue()


def test_the_json_keeps_its_schema_and_holds_what_check_writes():
    found = json.loads(jsonreport.as_json(made_document(*COLUMNS, NASTY)))
    VALIDATOR.validate(found)
    assert found["asked"] == ["sglang==0.5.17", "other==1", "sglang==0.5.18", "sglang==9.9", HOSTILE]
    assert found["problems"] == {"sglang==9.9": COLUMNS[3].problem}
    assert found["date"] == "2026-11-30T20:01:02+00:00"
    for column in COLUMNS[:3]:
        assert found["targets"][column.target] == json.loads(jsonreport.as_json(jsonreport.document(column.report)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("date",), "yesterday"),
        (("seed",), -1),
        (("torch",), ""),
        (("command",), "rm"),
        (("asked",), []),
        (("problems", "sglang==9.9"), ""),
        (("targets", "other==1", "results", 0, "outcome"), "passed"),
        (("targets", "other==1", "surprise"), 1),
        (("surprise",), 1),
    ],
)
def test_what_is_no_matrix_is_refused(path, value):
    found = copy.deepcopy(made_document())
    *parents, last = path
    place = found
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(found)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([("pass", "MUST")], 0),
        ([("fail", "SHOULD"), ("unwitnessed", "SHOULD")], 0),
        ([("unwitnessed", "MUST")], 3),
        ([("unwitnessed", "MUST"), ("error", "SHOULD")], 2),
        ([("error", "MUST"), ("fail", "MUST")], 1),
    ],
)
def test_a_violated_must_of_any_target_counts_most_then_an_error_then_a_case_never_met(outcomes, code):
    columns = [
        Column(target=f"a=={i}", report=report(f"a=={i}", (result(0, outcome=outcome, level=level),)))
        for i, (outcome, level) in enumerate(outcomes)
    ]
    assert made_matrix(*columns).exit_code == code
    assert made_matrix(*columns[::-1]).exit_code == code
    assert made_matrix(*columns, COLUMNS[3]).exit_code == (1 if code == 1 else 2)


def test_a_target_that_was_not_had_is_an_error_in_every_row_and_never_a_pass():
    rows = view(made_document()).rows
    assert len(rows) == 7
    cells = [cell for row in rows for cell in row.cells if cell.column.target == "sglang==9.9"]
    assert {(cell.outcome, cell.note.message) for cell in cells} == {("error", COLUMNS[3].problem)}


def test_where_no_target_was_had_every_invariant_has_an_error():
    rows = view(made_document(COLUMNS[3])).rows
    assert len(rows) == 44
    assert {cell.outcome for row in rows for cell in row.cells} == {"error"}


def test_columns_stand_by_engine_and_one_violation_of_two_releases_is_told_once():
    seen = view(made_document())
    assert {engine: [one.version for one in of_it] for engine, of_it in seen.engines.items()} == {
        "sglang": ["0.5.17", "0.5.18", "9.9"],
        "other": ["1"],
    }
    (budget,) = [note for note in seen.notes if note.level == "SHOULD"]
    assert list(budget.commands) == ["sglang==0.5.17", "sglang==0.5.18"]
    assert [note.outcome for note in seen.notes] == ["fail", "fail", "error", "error", "unwitnessed", "skip", "skip"]
    assert [note.level for note in seen.notes][:2] == ["MUST", "SHOULD"]


def test_two_cases_of_one_sentence_are_two_violations():
    case = dataclasses.replace(result(4).counterexample, python="ReplayCase()")
    other = result(4, counterexample=case)
    again = Column(target="sglang==0.5.19", report=report("sglang==0.5.19", (*GOOD[:4], other, *GOOD[5:])))
    notes = view(made_document(*COLUMNS, again)).notes
    assert sum("delay.budget" in note.invariants and note.outcome == "fail" for note in notes) == 2


def test_the_whole_table_at_80_columns():
    text = shown(made_document())
    assert text.startswith(TABLE)
    assert text.endswith("4 targets in 12.3 s, profile ci, seed 0, exit code 1\n")
    assert text.isascii()


def many(*versions, engine="sglang"):
    return [Column(target=f"{engine}=={one}", report=report(f"{engine}=={one}", GOOD)) for one in versions]


def heading(text):
    """The lines above the first rule, and those between the last row and the legend."""
    above, _, rest = text.partition("\n---")
    return above.split("\n"), rest.partition("\n\n")[0].split("data.in-bounds")[1].split("\n")[1:]


def test_what_releases_have_in_common_is_cut_before_they_do_not_fit_and_it_is_said():
    eight = many(*(f"0.5.{n}" for n in range(16, 24)))
    above, key = heading(shown(made_document(*eight)))
    assert above[1].split() == ["16", "17", "18", "19", "20", "21", "22", "23"]
    assert key == ["sglang 16 to 23: sglang 0.5.16 to 0.5.23"]
    above, key = heading(shown(made_document(*eight), columns=100))
    assert (above[1].split()[0], key) == ("0.5.16", [])


def test_an_engines_name_is_cut_last_and_it_is_said():
    long = [*many("1", "2", engine="transformer-engine"), *many("3.1.0", "3.2.0", engine="megatron-core")]
    assert heading(shown(made_document(*long)))[0][0].split() == ["transformer-engine", "megatron-core"]
    above, key = heading(shown(made_document(*long), columns=42))
    assert above[0].split() == ["transforme", "megatron"]
    told = " ".join(line.strip() for line in key)
    assert told == "transforme: transformer-engine megatron 1.0 to 2.0: megatron-core 3.1.0 to 3.2.0"


def test_two_engines_whose_names_would_be_cut_alike_have_letters():
    alike = [column for name in ("engine-of-one", "engine-of-two") for column in many("1", engine=name)]
    above, key = heading(shown(made_document(*alike), columns=26))
    assert above[0].split() == ["a", "b"]
    assert key == ["engine-of-one: a 1", "engine-of-two: b 1"]


@pytest.mark.parametrize(("number", "columns", "tables"), [(12, 80, 1), (17, 80, 1), (30, 80, 2), (3, 20, 3)])
def test_no_row_is_wider_than_the_terminal_and_no_column_is_lost(number, columns, tables):
    engines = [column for n in range(number) for column in many(f"{n}.{n}.{n}", engine=f"engine-{n}")]
    text = shown(made_document(*engines), columns=columns)
    lines = text.split("\n")
    rows = [line for line in lines if line.startswith("capacity.no-overflow ")]
    assert len(rows) == tables
    assert sum(row.count(".") - 1 for row in rows) == number
    assert columns < 30 or all(len(row) <= columns for row in rows)
    for n in range(number):
        keyed = any(re.fullmatch(rf"engine-{n}: [a-z] {n}\.{n}\.{n}", line) for line in lines)
        above = any(line.split()[:1] == [f"engine-{n}"] for line in lines) and f" {n}.{n}.{n}\n" in text
        assert keyed or above


def test_a_badge_per_target_says_what_is_violated():
    found = dict(badges.badges(made_document()))
    said = [badge["message"] for badge in found.values()]
    assert said == ["1 MUST violated", "4 pass, 1 advised", "cannot be checked", "5 pass"]
    assert [badge["color"] for badge in found.values()] == ["red", "brightgreen", "lightgrey", "brightgreen"]
    assert list(found) == ["sglang-0.5.17.json", "sglang-0.5.18.json", "sglang-9.9.json", "other-1.json"]
    assert all(set(badge) == {"schemaVersion", "label", "message", "color"} for badge in found.values())
    assert found["other-1.json"]["label"] == "cpbcg other 1"


@pytest.mark.parametrize(
    ("outcome", "color"), [("error", "lightgrey"), ("unwitnessed", "yellow"), ("skip", "brightgreen")]
)
def test_only_what_was_judged_makes_a_badge_green(outcome, color):
    column = Column(target="a==1", report=report("a==1", (result(0, outcome=outcome),)))
    ((_, badge),) = badges.badges(made_document(column))
    assert badge["color"] == color


def test_badges_never_leave_their_folder_nor_take_the_place_of_another(tmp_path):
    nasty = [Column(target=name, problem="no") for name in ("../../x", "x", "x==", "..", "a/b", "a:b", HOSTILE)]
    badges.write(str(tmp_path), made_document(*nasty))
    assert len(list(tmp_path.iterdir())) == 7


def test_a_badge_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CpbcgError, match=r"cannot write badges into .*: File exists"):
        badges.check_folder(str(tmp_path / "file"))


def test_without_a_target_all_pinned_and_installed_are_taken_and_large_wheels_only_from_the_cache(monkeypatch):
    known = [
        {"name": "reference", "pinned": [], "cached": [], "installed": None},
        {"name": "sglang", "pinned": ["1", "2"], "cached": ["1"], "installed": "3"},
        {"name": "vllm", "pinned": ["4", "5"], "cached": ["5"], "installed": None},
        {"name": "torch", "pinned": [], "cached": [], "installed": "6"},
        {"name": "absent", "pinned": [], "cached": [], "installed": None},
    ]
    monkeypatch.setattr(targets, "known_engines", lambda: known)
    assert side_by_side.shipped() == ["reference", "sglang==1", "sglang==2", "vllm==5", "torch"]
