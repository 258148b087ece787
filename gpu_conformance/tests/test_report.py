"""What people and programs read of a run, as literal text; the verdicts behind it."""

import copy
import io
import json
from importlib import resources

import jsonschema
import pytest
from made_run import OVERFLOW, STOPPED, run, served

from cpbcg_ref import cases
from cpbcg_ref.report.jsonreport import as_json
from cpbcg_ref.report.terminal import Printer
from gpu_conformance.checks import Finding
from gpu_conformance.failure import KINDS
from gpu_conformance.report import document, show

FAILED = """\
group                        capture  replay  eager  reference  batches/s  hits  padding
lockstep cp 2, edges, exact     0.25    1.50   2.00       0.75       2.00  0.88     0.25
seconds of rank 0 by stage; share of batches that were replayed; share of rows that were padding

invariant                 level  outcome      batches
capacity.no-overflow      MUST   fail               8
agree.bucket              MUST   pass               8
agree.mode                MUST   pass               8
agree.collectives         MUST   pass               8
data.replay-equals-eager  MUST   unwitnessed        8
data.history-free         MUST   pass               8
data.padding-inert        MUST   pass               8
data.in-bounds            MUST   pass               8

FAIL capacity.no-overflow: lockstep cp 2, edges, exact, batch 3: rank 0 owns 9 rows, bucket 15
    captured 8

    lengths 17,17,14: 48 tokens, bucket 96
    rank  live  captured
    0     25    48
    1     23    48

  reproduce:
    python -m gpu_conformance --target sglang==0.5.17 \
--driver lockstep --cp-size 2 --workload edges --arithmetic exact --batches 2 --seed 0

UNWITNESSED data.replay-equals-eager: never came up in 8 batches: a cached prefix, a prompt that
    goes on

sglang 0.5.17: 1 MUST violated, 1 unwitnessed, 6 pass
1 group in 5.0 s, seed 0, exit code 1
"""
ENDED = """\
 lockstep cp 2, edges, exact: rank 1 stopped (no progress), last operation: batch 4:
    choosing a bucket

    rank 0 was at:
      File a.py, line 3 in all_gather

    rank 1 did not answer

  reproduce:
    python -m gpu_conformance --target sglang==0.5.17 \
--driver lockstep --cp-size 2 --workload edges --arithmetic exact --batches 2 --seed 0

sglang 0.5.17: 0 MUST violated, 8 unwitnessed
1 group, 1 of them with a rank that failed in 5.0 s, seed 0, exit code 2
"""
SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("schema.json").read_text())


def shown(one):
    stream = io.StringIO()
    show(one, Printer(stream))
    return stream.getvalue()


def results(one):
    return {result.invariant: result for result in one.report.results}


def test_the_terminal_shows_stages_verdicts_and_the_command_for_a_failure():
    assert shown(run(served(OVERFLOW))) == FAILED


def test_the_terminal_names_the_rank_that_failed():
    assert shown(run(served(failure=STOPPED))).partition("\nINFRASTRUCTURE")[2] == ENDED


def test_no_line_but_a_command_is_wider_than_a_page():
    wide = [line for line in shown(run(served(OVERFLOW))).split("\n") if len(line) > 100]
    assert all(line.startswith("    python -m gpu_conformance --target") for line in wide)


@pytest.mark.parametrize(
    ("done", "code"),
    [
        ([served(OVERFLOW)], 1),
        ([served(failure=STOPPED)], 2),
        ([served(OVERFLOW), served(failure=STOPPED)], 1),
        ([served(batches=2)], 3),
    ],
)
def test_exit_codes(done, code):
    assert run(*done).exit_code == code
    assert document(run(*done))["summary"]["exit_code"] == code


@pytest.mark.parametrize("done", [[served(OVERFLOW)], [served(failure=STOPPED)], [served(OVERFLOW), served()]])
def test_the_json_keeps_the_schema(done):
    told = json.loads(as_json(document(run(*done))))
    jsonschema.Draft202012Validator(SCHEMA).validate(told)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("groups", "driver", "mpi"),
        ("groups", "hit_rate", 1.5),
        ("groups", "surprise", 1),
        ("infrastructure", "rank", -1),
        ("infrastructure", "kind", "unwell"),
        ("infrastructure", "surprise", 1),
        ("infrastructure", "stacks", {"rank 0": ""}),
    ],
)
def test_what_is_no_report_is_refused(part, key, value):
    told = copy.deepcopy(json.loads(as_json(document(run(served(failure=STOPPED))))))
    (told[part][0] if part == "groups" else told[part])[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(told)


def test_every_kind_of_failure_is_in_the_schema():
    assert tuple(SCHEMA["$defs"]["infrastructure"]["properties"]["kind"]["enum"]) == KINDS


def test_infrastructure_is_null_where_every_rank_ended():
    assert document(run(served()))["infrastructure"] is None


def test_a_failure_holds_the_batch_as_a_case():
    (told,) = [row for row in document(run(served(OVERFLOW)))["results"] if row["outcome"] == "fail"]
    offer = served().group.offers[OVERFLOW.batch]
    lengths = tuple(len(one.tokens) - one.prefix for one in offer.requests)
    case = eval(told["counterexample"]["python"], vars(cases).copy())
    assert case.batches[0].lengths == lengths
    assert case.server == served().group.server


def test_the_smallest_batch_that_fails_is_shown():
    sizes = [sum(len(r.tokens) - r.prefix for r in offer.requests) for offer in served().group.offers]
    small = min(range(6), key=sizes.__getitem__)
    found = [Finding(invariant="data.in-bounds", sentence=f"in {n}", batch=n) for n in range(6)]
    assert f"batch {small}: in {small}" in results(run(served(*found)))["data.in-bounds"].message


def test_a_chunk_is_shown_only_if_no_other_batch_fails():
    offers = served().group.offers
    chunk = next(number for number, offer in enumerate(offers) if offer.chunked)
    found = [Finding(invariant="data.in-bounds", sentence=f"in {n}", batch=n) for n in (chunk, 2)]
    assert results(run(served(*found, batches=chunk + 2)))["data.in-bounds"].message.endswith(": in 2")
    assert f"in {chunk}" in results(run(served(found[0], batches=chunk + 2)))["data.in-bounds"].message


def test_a_batch_that_ran_eagerly_is_shown_only_if_no_replayed_one_fails():
    """Batch 6, the last that is served here, ran eagerly and is the smaller one."""
    found = [Finding(invariant="data.padding-inert", sentence=f"in {n}", batch=n) for n in (6, 1)]
    assert "in 1" in results(run(served(*found, batches=7)))["data.padding-inert"].message
    assert "in 6" in results(run(served(found[0], batches=7)))["data.padding-inert"].message


def test_a_finding_of_no_batch_is_told_too():
    end = Finding(invariant="agree.collectives", sentence="the end: batch: rank 0 none left", batch=999)
    assert "not run" in results(run(served(end)))["agree.collectives"].counterexample.picture


def test_an_interesting_case_that_never_came_up_is_unwitnessed():
    found = results(run(served(batches=2)))
    assert found["data.replay-equals-eager"].outcome == "unwitnessed"
    assert "never came up in 2 batches: " in found["data.replay-equals-eager"].message


def test_what_nobody_judged_is_unwitnessed():
    assert results(run(served(failure=STOPPED)))["agree.bucket"].message == "no batch was judged by it"


def test_the_command_tells_everything_that_was_not_usual():
    told = run(served(OVERFLOW), plant="mask", timeout_s=5.0, buckets=(32, 96)).report.of("fail")[0].reproduce
    for words in ("--driver lockstep --cp-size 2 --workload edges --arithmetic exact", "--plant mask", "--batches 2"):
        assert words in told
    assert "--buckets 32,96" in told
    assert "--inject" not in told
