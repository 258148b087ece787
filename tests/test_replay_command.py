"""`cpbcg replay`: what people read, as literal text; exit codes; nothing a target does stops the others."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from made_report import RESULTS, made_report
from saved_failures import ADAPTER, SELECT, VOTES, saved
from toys_dispatch import Toy

from cpbcg_ref import cases, cli
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.checking import session
from cpbcg_ref.checking.replaying import Replayed, exit_code, never_asked
from cpbcg_ref.checking.saved import id_of
from cpbcg_ref.engines.contract import Contract, Dispatcher
from cpbcg_ref.report.unittests import unittest_for
from cpbcg_ref.strategies import cases_for

ID = id_of("select.fits-rows", SELECT)
LAYOUT = cases.LayoutCase(cp_size=4, batch=cases.Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0)))
REPLAY = cases.ReplayCase(
    server=cases.Server(cp_size=2, capture_num_tokens=(15,), context_length=64),
    batches=(cases.Batch(lengths=(5, 5, 5), prefixes=(0, 0, 0)),),
)

WITHOUT_CP = cases.ReplayCase(server=dataclasses.replace(REPLAY.server, cp_size=1), batches=REPLAY.batches)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """run("replay", ...) -> (exit code, stdout, stderr) in a folder with adapter.py, failures in `failures/`."""
    before = signal.getsignal(signal.SIGINT)
    for name in ("CPBCG_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter.py").write_text(ADAPTER)

    def command(line):
        with pytest.raises(SystemExit) as end:
            cli.main([*line.split(), "--failures", "failures"])
        out, err = (text.replace(str(tmp_path), "DIR") for text in capsys.readouterr())
        return end.value.code, out, err

    yield command
    signal.signal(signal.SIGINT, before)


HELP = """\
Usage: cpbcg replay [OPTIONS] [IDS]...

  Ask the failures IDS again, on the target they were found on or on another: FIXED, FAILED or
  ERROR.

  `cpbcg check` saves what fails, a readable JSON file each. An id may be cut short, or be the
  file itself.

  cpbcg replay --list
  cpbcg replay 3f9c2ab1
  cpbcg replay 3f9 --target sglang@~/sglang     is it fixed on my branch?
  cpbcg replay --all --target sglang==0.5.23    everything that is saved, on this release
  cpbcg replay 3f9 --as example                 the line that pins it in a Hypothesis test
  cpbcg replay 3f9 --as unittest > test_it.py   a test for the engine's own suite

  Keep failures in your repository as a regression suite:

  cpbcg check sglang@. --failures tests/failures
  cpbcg replay --all --failures tests/failures --target sglang@.

  Exit code, the first that applies: 1 a MUST (with --strict a SHOULD too) FAILED; 2 an ERROR
  (target or file cannot be had, the engine cannot be asked, the adapter broke) or bad usage; 0.

Options:
  --all                         Replay all that are saved: a regression run.
  --list                        Show what is saved.
  --target TARGET               Ask this one.  [default: the target of each failure]
  --as [example|unittest|json]  Print the case instead of asking it.
  --strict                      A SHOULD that fails still fails the run too.
  --failures DIR                Folder of saved failures.  [default: per user]
  --json FILE                   Write the result as JSON; "-" is stdout.
  --allow-unpinned              Fetch a release without a known sha256.
  -h, --help                    Show this message and exit.
"""


def test_the_help_says_how_failures_become_a_regression_suite(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        cli.main(["replay", "--help"])
    assert capsys.readouterr() == (HELP, "")


FAILED = f"""\
FAILED {ID} select.fits-rows on wrong 2: bucket 27 for 24 tokens, 16 rows: too few rows: 8
    captured, 16 needed

    24 tokens, 16 rows per rank: answered 27
    bucket  captured rows  by the specification
    27      8              too few rows: 8 captured, 16 needed
    48      24             chosen
"""


def test_a_failure_that_is_still_there_is_shown_with_its_picture(run, tmp_path):
    saved(tmp_path / "failures")
    assert run(f"replay {ID}") == (1, FAILED, "")


def test_a_failure_that_is_gone_is_one_line(run, tmp_path):
    saved(tmp_path / "failures")
    fixed = f"FIXED {ID} select.fits-rows on fine 2\n"
    assert run(f"replay {ID[:4]} --target adapter.py:Fine") == (0, fixed, "")
    assert run(f"replay failures/{ID}.json --target reference")[0] == 0


ERRORS = {
    "Breaks": "on breaks 2: no verdict, KeyError: 'rows' (adapter.py:17)",
    "Leaves": "on leaves 2: no verdict, SystemExit: bye (adapter.py:29)",
    "Dies": "on adapter.py:Dies: the engine ended the worker process",
    "Without": "on without 2: without 2 cannot be asked select.fits-rows: no selector in this release",
    "Missing": "on adapter.py:Missing: 'adapter.py:Missing': no Missing in cpbcg_target_adapter, it has Fine, Wrong,",
}


@pytest.mark.parametrize("name", ERRORS)
def test_where_there_is_no_verdict_the_reason_is_one_line(run, tmp_path, name):
    saved(tmp_path / "failures")
    code, out, err = run(f"replay {ID} --target adapter.py:{name}")
    assert (code, err) == (2, "")
    assert " ".join(out.split()).startswith(f"ERROR {ID} select.fits-rows {ERRORS[name]}")


def test_a_ladder_that_the_engine_cannot_capture_is_an_error(run, tmp_path):
    one = saved(tmp_path / "failures", REPLAY, "capacity.no-overflow")
    code, out, _ = run(f"replay {one.id} --target adapter.py:Starts")
    assert code == 2
    assert out.startswith(f"ERROR {one.id} capacity.no-overflow on starts 2: the engine cannot capture the ladder")
    assert "out of memory" in out


def test_a_case_that_no_check_would_ask_of_this_engine_is_an_error(run, tmp_path):
    one = saved(tmp_path / "failures", LAYOUT, "layout.bijection", target="adapter.py:Small")
    message = "no check asks it this case: it supports groups of 1, 2\n    ranks, not of 4"
    assert run(f"replay {one.id}") == (2, f"ERROR {one.id} layout.bijection on wrong 2: {message}\n", "")


def test_what_an_engine_lacks_is_said_before_what_it_would_not_be_asked(run, tmp_path):
    one = saved(tmp_path / "failures", cases.CaptureCase(server=REPLAY.server), "capture.legal")
    _, out, _ = run(f"replay {one.id} --target adapter.py:Old")
    assert out == f"ERROR {one.id} capture.legal on wrong 2: wrong 2 cannot be asked capture.legal: no CP graphs\n"


@pytest.fixture
def four(tmp_path):
    """The ids of a FAILED, a FIXED, one whose target dies and one that is no saved failure."""
    folder = tmp_path / "failures"
    found = saved(folder).id, saved(folder, VOTES, "delay.chunk-counts", target="adapter.py:Fine").id
    dies = saved(folder, SELECT, "select.minimal", target="adapter.py:Dies").id
    (folder / "0badf00d.json").write_text("{}")
    return *found, dies, "0badf00d"


def test_all_is_a_regression_run_with_a_summary(run, four):
    _, fixed, dies, broken = four
    assert run("replay --all") == (
        1,
        f"""\
ERROR {broken}: failures/{broken}.json is no saved failure: the document: Object missing required
    field `id`
FIXED {fixed} delay.chunk-counts on fine 2
{FAILED}
ERROR {dies} select.minimal on adapter.py:Dies: the engine ended the worker process

4 replayed: 1 FIXED, 1 FAILED, 2 ERROR, exit code 1
""",
        "",
    )


def test_the_others_are_asked_after_one_that_kills_its_process(run, tmp_path):
    folder = tmp_path / "failures"
    saved(folder, REPLAY, "capacity.no-overflow")
    saved(folder, VOTES, "delay.chunk-counts")
    for name in ("select.complete", "select.fits-rows"):
        saved(folder, SELECT, name)
    _, out, _ = run("replay --all --target adapter.py:Dies")
    assert re.findall(r"^(\w+) [0-9a-f]{8} (\S+)", out, re.MULTILINE) == [
        ("ERROR", "capacity.no-overflow"),
        ("FIXED", "delay.chunk-counts"),
        ("ERROR", "select.complete"),
        ("ERROR", "select.fits-rows"),
    ]
    assert out.count("the engine ended the worker process") == 3
    assert out.endswith("\n4 replayed: 1 FIXED, 3 ERROR, exit code 2\n")


def test_verdicts_are_sorted_by_invariant_whatever_they_were_found_on(run, tmp_path):
    for number, name in enumerate(("select.complete", "select.fits-rows", "select.minimal", "select.pure")):
        saved(tmp_path / "failures", SELECT, name, target=("adapter.py:Fine", "reference")[number % 2])
    _, out, _ = run("replay --all")
    assert re.findall(r"(select\S+) on (\w+)", out) == [
        ("select.complete", "fine"),
        ("select.fits-rows", "reference"),
        ("select.minimal", "fine"),
        ("select.pure", "reference"),
    ]


TRIED = """
with open("tried", "a") as tried:
    tried.write("x")
raise ImportError("no torch here")
"""


def test_a_target_that_cannot_be_obtained_is_tried_once(run, tmp_path):
    (tmp_path / "tried.py").write_text(TRIED)
    for name in ("select.complete", "select.fits-rows"):
        saved(tmp_path / "failures", SELECT, name)
    code, out, _ = run("replay --all --target tried.py:Engine")
    assert (code, out.count("ImportError")) == (2, 2)
    assert (tmp_path / "tried").read_text() == "x"


def test_the_verdicts_as_json(run, four, tmp_path):
    failed, fixed, dies, broken = four
    code, out, err = run("replay --all --json -")
    told = json.loads(out)
    assert (code, err) == (1, "")
    assert told["summary"] == {"fixed": 1, "failed": 1, "error": 2, "exit_code": 1}
    assert [one["id"] for one in told["replays"]] == [broken, fixed, failed, dies]
    of_failed = told["replays"][2]
    assert of_failed.pop("picture").startswith("24 tokens, 16 rows per rank: answered 27\n")
    assert of_failed == {
        "id": failed,
        "outcome": "FAILED",
        "invariant": "select.fits-rows",
        "level": "MUST",
        "target": "adapter.py:Wrong",
        "engine": "wrong",
        "version": "2",
        "message": "bucket 27 for 24 tokens, 16 rows: too few rows: 8 captured, 16 needed",
    }
    assert run(f"replay {fixed} --json x.json") == (0, f"FIXED {fixed} delay.chunk-counts on fine 2\n", "")
    assert json.loads((tmp_path / "x.json").read_text())["replays"][0]["outcome"] == "FIXED"


def test_the_list_shows_what_is_saved(run, four, tmp_path):
    failed, fixed, dies, broken = four
    code, out, err = run("replay --list")
    assert (code, err) == (2, "")
    assert (
        re.sub(r"20\d\d-\S+", "TIME", out)
        == f"""\
id        invariant           level  found on          at
{fixed}  delay.chunk-counts  MUST   adapter.py:Fine   TIME
{failed}  select.fits-rows    MUST   adapter.py:Wrong  TIME
{dies}  select.minimal      MUST   adapter.py:Dies   TIME

ERROR {broken}: failures/{broken}.json is no saved failure: the document: Object missing required
    field `id`
3 saved in failures, delete a file to forget it
"""
    )
    (tmp_path / "failures" / f"{broken}.json").unlink()
    code, out, _ = run("replay --list --json -")
    told = json.loads(out)
    assert code == 0
    assert told["failures"][1] == json.loads((tmp_path / "failures" / f"{failed}.json").read_text())
    assert (told["folder"], told["unreadable"]) == ("failures", [])


def test_an_empty_list_says_where_it_looked(run):
    assert run("replay --list") == (0, "nothing saved in failures\n", "")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "name the ids of saved failures, or --all; --list shows what is saved"),
        ("abc --all", "name the ids of saved failures, or --all; --list shows what is saved"),
        ("--all --list", "name the ids of saved failures, or --all; --list shows what is saved"),
        ("--all", "no failure is saved in failures: there is nothing to replay"),
        ("abc", "no failure 'abc' is saved in failures: nothing is"),
        ("--list --as json", "--as prints to stdout: it goes with ids or --all, not with --list or --json"),
        ("abc --as json --json -", "--as prints to stdout: it goes with ids or --all, not with --list or --json"),
        ("abc --as picture", "'picture' is not one of 'example', 'unittest', 'json'"),
    ],
)
def test_bad_usage_is_one_sentence(run, line, sentence):
    code, out, err = run(f"replay {line}")
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_json_file_that_cannot_be_written_is_told_before_anything_is_asked(run, tmp_path):
    (tmp_path / "tried.py").write_text(TRIED)
    saved(tmp_path / "failures", target="tried.py:Engine")
    code, out, err = run(f"replay {ID} --json no/such/file")
    assert not (tmp_path / "tried").exists()
    assert (code, out, err) == (2, "", "error: cannot write no/such/file: no permission, or no such folder\n")


def test_the_line_that_pins_a_case_can_be_pasted(run, tmp_path):
    saved(tmp_path / "failures")
    code, out, err = run(f"replay {ID} --as example")
    assert (code, err) == (0, "")
    line = re.fullmatch(r"@example\(case=(.*)\)\n", out)
    assert eval(line[1], vars(cases)) == SELECT


def test_the_file_is_printed_as_it_is(run, tmp_path):
    saved(tmp_path / "failures")
    assert run(f"replay {ID} --as json") == (0, (tmp_path / "failures" / f"{ID}.json").read_text(), "")


def test_a_test_for_the_engines_own_suite_is_printed_whole(run, tmp_path):
    one = saved(tmp_path / "failures", REPLAY, "capacity.no-overflow")
    told = {"invariant": one.invariant, "case": REPLAY, "message": one.message}
    code, out, err = run(f"replay {one.id} --as unittest --target sglang==0.5.18")
    assert (code, out, err) == (0, unittest_for(engine="sglang", **told), "")
    code, out, err = run(f"replay {one.id} --as unittest")
    assert (code, out) == (2, "")
    assert err.startswith("error: no unittest")


def test_tests_are_printed_one_at_a_time(run, four):
    code, out, err = run("replay --all --as unittest")
    assert (code, out) == (2, "")
    assert "--as unittest writes a whole file: name one failure" in err


def test_a_reader_that_stops_reading_is_no_error(tmp_path):
    long = cases.VotesCase(mid_chunk=(False,) * 20_000, waiting=(1,) * 20_000)  # more than a pipe holds
    one = saved(tmp_path, long, "delay.chunk-counts")
    line = (
        f"{sys.executable} -m cpbcg_ref.cli replay {tmp_path}/{one.id}.json --as json | true; echo ${{PIPESTATUS[0]}}"
    )
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_no_form_of_an_unreadable_file(run, four):
    code, out, err = run(f"replay {four[3]} --as example")
    assert (code, out) == (2, "")
    assert err.startswith("error: failures/0badf00d.json is no saved failure: ")


def test_an_id_given_twice_is_replayed_once(run, tmp_path):
    saved(tmp_path / "failures")
    assert (
        run(f"replay {ID} {ID[:3]} failures/{ID}.json {tmp_path}/failures/{ID}.json --target reference")[1].count(
            "FIXED"
        )
        == 1
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([], 0), (["FIXED"], 0), (["FIXED", "ERROR"], 2), (["ERROR", "FAILED", "FIXED"], 1), (["FAILED"], 1)],
)
def test_a_failure_outranks_an_error(outcomes, code):
    assert exit_code([replayed_as(one) for one in outcomes]) == code


def test_advice_that_is_not_followed_fails_a_replay_only_if_strict():
    assert exit_code([replayed_as("FAILED", level="SHOULD")]) == 0
    assert exit_code([replayed_as("FAILED", level="SHOULD")], strict=True) == 1
    assert exit_code([replayed_as("FAILED", level="SHOULD"), replayed_as("ERROR", level="SHOULD")]) == 2


def replayed_as(outcome, level="MUST"):
    return Replayed(id="1", outcome=outcome, level=level, message="x" * (outcome != "FIXED"))


@pytest.mark.parametrize(
    "told", [{"outcome": "PASSED", "message": "x"}, {"outcome": "FAILED"}, {"outcome": "FIXED", "message": "x"}]
)
def test_a_verdict_is_one_of_three_and_says_why(told):
    with pytest.raises(AssertionError):
        Replayed(id="1", **told)


PLAIN, STEP = Contract(dispatchers=Toy.contract.dispatchers), cases.Step(decodes=1)
ALIGNED = dataclasses.replace(PLAIN, strategies=("zigzag", "interleave"), cp_sizes=(1, 2, 4), divides=2)
TWO = cases.DispatchCase(setup="two", capture_num_tokens=(4,), max_requests=2, ranks=(STEP,), tokens_per_decode=2)
ONE = cases.DispatchCase(setup="one", capture_num_tokens=(2,), max_requests=2, ranks=(STEP,))
WHOLE = Contract(dispatchers={"two": Dispatcher(tokens_per_decode=(2, 3), multiples=True)})


@pytest.mark.parametrize("contract", [PLAIN, ALIGNED], ids=["plain", "aligned"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_that_a_check_asks_can_be_replayed(family, contract):
    from hypothesis import HealthCheck, given, settings

    @settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases_for(family, contract))
    def asked(case):
        assert never_asked(case, contract) == ""

    asked()


@pytest.mark.parametrize(
    ("case", "contract", "reason"),
    [
        (LAYOUT, Contract(cp_sizes=(1, 2)), "it supports groups of 1, 2 ranks, not of 4"),
        (LAYOUT, Contract(strategies=("interleave",)), "it has no layout zigzag"),
        (LAYOUT, Contract(divides=2), "it does not shard lengths [9, 9, 9] on 4 ranks"),
        (REPLAY, Contract(cp_sizes=(4, 8)), "it supports groups of 4, 8 ranks, not of 2"),
        (REPLAY, Contract(graph_strategies=("interleave",)), ""),
        (WITHOUT_CP, Contract(strategies=("interleave",)), ""),
        (
            cases.CaptureCase(server=REPLAY.server),
            Contract(graph_strategies=("x",)),
            "it captures no graphs for zigzag",
        ),
        (
            cases.BadLayoutCase(cp_size=2, lengths=(1,)),
            Contract(cp_sizes=(4,)),
            "it supports groups of 4 ranks, not of",
        ),
        (cases.BadLayoutCase(cp_size=2, lengths=(1,)), PLAIN, ""),
        (SELECT, Contract(cp_sizes=()), ""),
        (TWO, Contract(), "it has no dispatcher 'two', it has none"),
        (dataclasses.replace(TWO, setup="x"), PLAIN, "it has no dispatcher 'x', it has two, one"),
        (TWO, PLAIN, ""),
        (TWO, WHOLE, ""),
        (dataclasses.replace(TWO, tokens_per_decode=3), WHOLE, "its buckets are multiples of 3"),
        (dataclasses.replace(TWO, tokens_per_decode=4), PLAIN, "its decodes never have 4 tokens"),
        (dataclasses.replace(TWO, excluded=("FULL",)), PLAIN, ""),
        (dataclasses.replace(TWO, excluded=("FULL",)), WHOLE, "its callers choose no modes"),
        (ONE, PLAIN, ""),
        (dataclasses.replace(ONE, max_requests=3), PLAIN, "its largest bucket is its most requests"),
    ],
)
def test_a_case_is_not_put_to_an_engine_whose_contract_excludes_it(case, contract, reason):
    assert never_asked(case, contract)[: len(reason) or None] == reason


@pytest.fixture
def check_ends(monkeypatch):
    """Every check ends with these results."""

    def ends(*results):
        monkeypatch.setattr(session, "check", lambda target, **options: made_report(results=results))

    return ends


def test_check_saves_what_fails_and_says_how_to_replay_it(run, check_ends, tmp_path):
    check_ends(RESULTS[1])
    code, out, err = run("check --allow-unpinned")
    name = next((tmp_path / "failures").iterdir()).stem
    assert (code, err) == (1, "")
    command = f"cpbcg replay {name} --failures failures --allow-unpinned [--target TARGET]"
    assert f"\n\n  saved, put it to this or another target:\n    {command}\n" in out


def test_no_save_saves_nothing_and_says_nothing(run, check_ends, tmp_path):
    check_ends(RESULTS[1])
    code, out, err = run("check --no-save")
    assert (code, err, "saved" in out) == (1, "", False)
    assert not (tmp_path / "failures").exists()


def test_a_folder_that_cannot_be_written_spoils_no_verdict(run, check_ends, tmp_path):
    check_ends(RESULTS[1])
    (tmp_path / "failures").write_text("a file")
    code, out, err = run("check")
    assert code == 1
    assert "FAIL capacity.no-overflow" in out
    assert re.fullmatch(r"failures were not saved: .*failures.* \(--failures DIR .*\)\n", err)


def test_by_default_failures_go_to_the_users_state_folder_and_nowhere_else(tmp_path):
    (tmp_path / "adapter.py").write_text(ADAPTER)
    work = tmp_path / "work"
    work.mkdir()
    environment = os.environ | {"CPBCG_STATE": str(tmp_path / "state"), "COLUMNS": "100"}

    def command(*words, folder=tmp_path):
        line = [sys.executable, "-m", "cpbcg_ref.cli", *words]
        return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)

    ended = command("check", "../adapter.py:Wrong", "--select", "select.fits-rows", "--profile", "dev", folder=work)
    assert ended.returncode == 1, ended.stderr
    saying = re.search(r"cpbcg (replay [0-9a-f]{8}) \[--target TARGET\]\n", ended.stdout)[1].split()
    assert [path.stem for path in (tmp_path / "state" / "failures").iterdir()] == saying[1:]
    assert command(*saying).stdout.startswith(f"FAILED {saying[1]} select.fits-rows on wrong 2: ")
    assert (
        command(*saying, "--target", "reference").stdout == f"FIXED {saying[1]} select.fits-rows on reference 0.1.0\n"
    )
    assert list(work.iterdir()) == []
