"""A campaign: what is found, told, saved and found again; the time is kept; nothing that an engine does ends it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import fakeredis
import pytest

from cpbcg_ref import cases, cli
from cpbcg_ref.asking import ask_select
from cpbcg_ref.checking import saved
from cpbcg_ref.checking.campaign import GIVE_UP_AFTER, Campaign
from cpbcg_ref.checking.fuzzing import GRACE_S, fuzz
from cpbcg_ref.checking.rounds import DIFFERENTLY, Fared, Found, Job, Round, Searcher
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.workers import Ended, Team
from cpbcg_ref.commands.fuzz import duration
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.report import watching
from cpbcg_ref.report.fuzzing import state

COMMAND = [sys.executable, "-m", "cpbcg_ref.cli", "fuzz"]
ADAPTER = """
import os, time
from cpbcg_ref.engines.reference import Reference

class One(Reference):
    name = "one"
    def select_replay_bucket(self, **asked):
        return 1

class Slow(Reference):
    def select_replay_bucket(self, **asked):
        time.sleep(0.2)
        return super().select_replay_bucket(**asked)

class Hangs(Reference):
    def select_replay_bucket(self, **asked):
        time.sleep(1000)

class Dies(Reference):
    def select_replay_bucket(self, **asked):
        os._exit(7)

class Breaks(Reference):
    def select_replay_bucket(self, **asked):
        return {}["bucket"]
"""


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    """adapter("One") -> the target. What a campaign leaves is in the test's own folder."""
    monkeypatch.setenv("CPBCG_STATE", str(tmp_path / "state"))
    (tmp_path / "adapter.py").write_text(ADAPTER)
    return lambda name: f"{tmp_path / 'adapter.py'}:{name}"


@pytest.fixture
def run(capsys):
    """run("fuzz", ...) -> (exit code, stdout, stderr)."""
    before = signal.getsignal(signal.SIGINT)

    def command(*args):
        with pytest.raises(SystemExit) as end:
            cli.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    yield command
    signal.signal(signal.SIGINT, before)


def searched(target, *ids, seconds=60.0, **how):
    """The campaign and the lines that were told."""
    told = []
    return fuzz(target, seconds=seconds, ids=ids, tell=told.append, **{"workers": 2} | how), told


def test_a_wrong_engine_is_found_saved_and_can_be_replayed(run, adapter, tmp_path):
    args = ("--select", "select.fits-tokens", "--max-time", "60", "-n", 2, "--json", tmp_path / "x.json")
    code, out, err = run("fuzz", adapter("One"), *args)
    assert (code, err) == (1, "")
    assert out.count("FAIL select.fits-tokens: bucket 1 for 2 tokens, 1 rows: too few tokens: 2 needed\n") == 2
    (found,) = json.loads((tmp_path / "x.json").read_text())["found"]
    assert found["counterexample"]["case"]["num_tokens"] == 2
    assert f"\n    {found['replay']}\n" in out
    assert run(*found["replay"].split()[1:])[0] == 1
    assert run(*found["replay"].split()[1:], "--target", "reference")[0] == 0


def test_a_campaign_as_json(run, adapter):
    args = ("--select", "select.fits-tokens,select.pure", "--max-time", "2", "--seed", 3, "--json", "-")
    code, out, _ = run("fuzz", adapter("One"), *args, "--no-save")
    told = json.loads(out)
    assert told["target"] == {"engine": "one", "version": "0.1.0"}
    assert (
        (told["exit_code"], told["seed"], told["interrupted"], told["errors"])
        == (code, 3, False, {})
        == (1, 3, False, {})
    )
    assert 2.0 <= told["seconds"] < 2.0 + GRACE_S + 1.5
    assert told["examples"] >= told["rounds"] >= 1
    (found,) = told["found"]
    assert (found["invariant"], found["outcome"], found["saved"], found["replay"]) == (
        "select.fits-tokens",
        "fail",
        "",
        "",
    )
    assert found["times"] >= 1
    assert set(told["witnesses"]) == {"select.fits-tokens", "select.pure"}
    assert all(count > 0 for count in told["witnesses"]["select.pure"].values())


def test_without_a_terminal_the_state_is_told_now_and_then(run, adapter, monkeypatch):
    monkeypatch.setattr(watching, "TELL_EVERY_S", 0.7)
    _, _, err = run("fuzz", adapter("Slow"), "--select", "select.pure", "--max-time", "3", "--database", "none")
    lines = err.splitlines()
    assert 1 <= len(lines) <= 4
    assert all(re.match(r"0:0[0-2] left, \d+ examples \(\d+ a second\), ", line) for line in lines)


def test_the_command_that_reproduces_a_failure_does(run, adapter):
    campaign, _ = searched(adapter("One"), "select.fits-tokens", database="none")
    command = campaign.failures["select.fits-tokens"].result.reproduce
    code, out, _ = run(*command.split()[1:], "--no-save")
    assert (code, command in out) == (1, True)


def test_a_second_campaign_starts_with_what_the_first_found(adapter):
    first, _ = searched(adapter("One"), "select.fits-tokens")
    assert not first.failures["select.fits-tokens"].found.stored
    second, _ = searched(adapter("One"), "select.fits-tokens", seed=5, workers=1)
    assert second.failures["select.fits-tokens"].found.stored
    assert second.report().results[0].examples == 1


def test_two_machines_share_a_campaign_through_a_server(adapter):
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shared = {"database": f"redis://127.0.0.1:{server.server_address[1]}/0", "workers": 1}
    stored = [searched(adapter("One"), KEY[0], seed=seed, **shared)[0].failures[KEY[0]].found.stored for seed in (1, 2)]
    server.shutdown()
    server.server_close()
    assert stored == [False, True]


@pytest.mark.parametrize("name", ["Slow", "Hangs"])
def test_the_time_is_kept_however_slow_the_engine_is(adapter, name):
    campaign, told = searched(adapter(name), "select.pure", seconds=2.0, database="none")
    (result,) = campaign.report().results
    assert 2.0 <= campaign.report().seconds < 2.0 + GRACE_S + 1.5
    assert result.outcome in ("pass", "unwitnessed")
    assert bool(told) == (name == "Hangs")
    assert set(told) <= {"select: still busy with one case when the time was up"}


def test_a_death_is_told_with_its_family_and_the_rest_goes_on(adapter):
    campaign, told = searched(adapter("Dies"), "select.pure", "delay.recent-size", seconds=3.0, database="none")
    died = "the engine's code ended the worker process (exit code 7)"
    assert set(told) == {f"select: {died}"}
    pure, recent = campaign.report().results
    assert (pure.outcome, pure.message) == ("error", f"{died}, in select")
    assert (recent.outcome, recent.examples > 0, campaign.exit_code) == ("pass", True, 2)


def test_a_broken_adapter_is_an_error_and_given_up_after_some_tries(adapter):
    campaign, _ = searched(adapter("Breaks"), "select.pure", database="none")
    (result,) = campaign.report().results
    assert result.outcome == "error"
    assert GIVE_UP_AFTER <= campaign.rounds["select"] <= GIVE_UP_AFTER + 1  # the other worker was at it too
    assert result.message.startswith("KeyError: 'bucket' (")


@pytest.mark.parametrize(("name", "code"), [("One", 1), ("Slow", 130)])
def test_ctrl_c_shows_what_was_found_so_far(adapter, name, code):
    ids = "select.fits-tokens,delay.recent-size" if name == "One" else "select.fits-tokens"
    command = [*COMMAND, adapter(name), "--select", ids, "-n", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, start_new_session=True)
    first = process.stdout.readline() + process.stdout.readline() if name == "One" else time.sleep(4) or ""
    assert ("FAIL select.fits-tokens" in first) == (name == "One")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, "")
    assert f" s, seed 0, exit code {code}\n" in out
    assert re.search(r" rounds? interrupted after ", out)


def test_on_a_terminal_the_state_is_shown_while_it_runs(adapter):
    terminal, theirs = pty.openpty()
    command = [*COMMAND, adapter("Slow"), "--select", "select.pure", "--max-time", "3", "-n", "1"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "150"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=60, text=True)
    os.close(theirs)
    shown = os.read(terminal, 65536).decode()
    assert "0:02 left, " in shown
    assert " of 1 witnesses met, 0 invariants violated" in shown
    assert "left, " not in done.stdout


def doubling():
    return lambda number: 2 * number


def test_a_worker_leaves_ctrl_c_to_its_parent():
    team = Team(1, doubling, ())
    answers = []
    for number in (1, 2):
        (worker,) = team.idle()
        worker.take(number, seconds=30)
        answers += [ended.answer for ended in team.ended(within_s=30)]
        os.kill(worker.process.pid, signal.SIGINT)
    team.stop()
    assert answers == [2, 4]


CASE = cases.SelectCase(
    num_tokens=9, required_local_tokens=8, capture_num_tokens=(8, 16), bucket_local_tokens=((8, 4), (16, 8))
)
SMALLER = replace(CASE, capture_num_tokens=(8,), bucket_local_tokens=((8, 4),))
KEY = ("select.fits-tokens", 0)


@pytest.fixture
def campaign(tmp_path):
    """A campaign without processes; what it announces is in `campaign.announced`."""
    announced = []
    checker = Checker(engine=Reference(), target="reference", profile="dev")
    made = Campaign(
        checker=checker,
        ids=("select.fits-tokens", "select.pure", "delay.recent-size"),
        seconds=60.0,
        tell=announced.append,
        announce=announced.append,
        folder=tmp_path,
    )
    made.announced = announced
    return made


def ended(job, *parts):
    return Ended(job, Round(job=job, lost="", asked=10, seconds=1.0, parts=parts))


def fared(key=KEY, *, case=None, **how):
    seen = ask_select(Reference(), CASE)
    found = Found(sentence="wrong", case=case, seen=seen, **how) if case else None
    return Fared(key=key, examples=10, witnesses={}, error="", found=found)


def job(*keys, shrink=False, family="select"):
    return Job(family=family, keys=keys or (KEY,), seed=1, seconds=1.0, shrink=shrink)


def test_a_failure_is_shrunk_first_and_told_then(campaign):
    campaign.take(ended(job(), fared(case=CASE)))
    assert (campaign.announced, campaign.open(KEY)) == ([], False)
    shrinking = campaign.next_job()
    assert (shrinking.keys, shrinking.shrink, shrinking.seed) == ((KEY,), True, 1)
    campaign.take(ended(shrinking, fared(case=SMALLER, shrunk=True)))
    (told,) = campaign.announced
    assert (told.found.case, told.result.replay) == (SMALLER, f"cpbcg replay {told.saved}")
    assert told.result.reproduce == "cpbcg check reference --select select.fits-tokens --profile dev --seed 1"
    assert saved.read(tmp := next(campaign.folder.iterdir())).case == SMALLER, tmp
    assert not any(KEY in campaign.next_job().keys for _ in range(5))


def test_a_part_whose_workers_die_is_given_up(campaign):
    for _ in range(GIVE_UP_AFTER):
        assert campaign.open(KEY)
        campaign.take(Ended(job(), problem="it died"))
    assert not campaign.open(KEY)
    assert {campaign.next_job().family for _ in range(4)} == {"select", "attempts"}
    assert all(KEY not in campaign.next_job().keys for _ in range(4))


def test_only_who_was_still_busy_at_the_end_is_excused(campaign):
    campaign.seconds = 0.0
    campaign.take(Ended(job(), problem="it does not come back", hung=True))
    assert campaign.errors == {}
    campaign.take(Ended(job(), problem="it died"))
    assert campaign.announced == ["select: still busy with one case when the time was up", "select: it died"]
    assert campaign.errors == {KEY: ["it died, in select"]}


def test_what_fails_again_is_counted_and_not_told_again(campaign):
    campaign.take(ended(job(), fared(case=CASE)))
    campaign.take(ended(job(), fared(case=CASE)))
    campaign.take(ended(campaign.next_job(), fared(case=CASE, shrunk=True)))
    campaign.take(ended(job(), fared(case=CASE, shrunk=True, stored=True)))
    assert (len(campaign.announced), campaign.times, campaign.to_shrink) == (1, Counter({KEY[0]: 3}), [])


@pytest.mark.parametrize("larger", [CASE, replace(SMALLER, num_tokens=10)])  # the latter has as many buckets
@pytest.mark.parametrize("turned", [False, True])
def test_the_smallest_case_is_kept(campaign, larger, turned):
    for case in (SMALLER, larger) if turned else (larger, SMALLER):
        campaign.take(ended(job(), fared(case=case, shrunk=True, stored=True)))
    assert len(campaign.announced) == 1
    assert campaign.failures[KEY[0]].found.case == SMALLER
    assert eval(campaign.report().results[0].counterexample.python, vars(cases)) == SMALLER


def test_what_could_not_be_shrunk_in_time_is_told_as_it_was_found(campaign):
    campaign.take(ended(job(), fared(case=CASE)))
    campaign.finish()
    assert [failure.found.case for failure in campaign.announced] == [CASE]


def test_a_database_that_is_lost_is_told_once_and_ends_nothing(campaign):
    for _ in range(2):
        job = campaign.next_job()
        campaign.take(Ended(job, Round(job=job, lost="it is gone", asked=10, seconds=1.0, parts=(fared(job.keys[0]),))))
    assert campaign.announced == ["it is gone"]
    assert campaign.report().of("error") == []


def test_a_worker_that_dies_while_it_shrinks_loses_no_failure(campaign):
    campaign.take(ended(job(), fared(case=CASE)))
    campaign.take(Ended(campaign.next_job(), problem="it died"))
    assert campaign.failures[KEY[0]].found.case == CASE
    campaign.finish()
    assert campaign.report().results[0].outcome == "fail"


@pytest.mark.parametrize("problem", ["", "it died"])
def test_shrinking_in_vain_loses_no_failure_that_came_out_of_the_database_meanwhile(campaign, problem):
    campaign.take(ended(job(), fared(case=CASE)))
    shrinking = campaign.next_job()
    campaign.take(ended(job(), fared(case=SMALLER, shrunk=True, stored=True)))
    campaign.take(Ended(shrinking, problem=problem) if problem else ended(shrinking, fared()))
    assert [failure.found.case for failure in campaign.announced if not isinstance(failure, str)] == [SMALLER]


def test_a_failure_that_does_not_come_back_is_an_error(campaign):
    campaign.take(ended(job(), fared(case=CASE)))
    differently = replace(fared(), error="differently")
    campaign.take(ended(campaign.next_job(), differently))
    campaign.finish()
    assert (campaign.announced, campaign.report().results[0].outcome) == ([], "error")


def test_a_failure_that_its_seed_does_not_bring_back_is_an_error():
    answers = [1] * 5

    class Fickle(Reference):
        def select_replay_bucket(self, **asked):
            return answers.pop() if answers else super().select_replay_bucket(**asked)

    searcher = Searcher(checker=Checker(engine=Fickle(), target="x", profile="dev"), database=None)
    assert searcher.do(replace(job(), seconds=30)).parts[0].found
    (again,) = searcher.do(replace(job(shrink=True), seconds=30)).parts
    assert (again.found, again.error) == (None, f"{DIFFERENTLY}: this time none failed")


def test_a_folder_that_cannot_be_written_spoils_no_verdict(campaign, tmp_path):
    campaign.folder = tmp_path / "file"
    campaign.folder.write_text("")
    campaign.take(ended(job(), fared(case=CASE, shrunk=True, stored=True)))
    told, failure = campaign.announced
    assert told.startswith("select.fits-tokens could not be saved: ")
    assert (failure.saved, failure.result.replay, failure.result.outcome) == ("", "", "fail")


def test_families_take_turns_and_one_with_open_witnesses_is_due_twice(campaign):
    for _ in range(2):
        turn = campaign.next_job()
        witnesses = {name: 1 for key in turn.keys for name in campaign.runs[key].demanded}
        parts = [replace(fared(key), witnesses=witnesses if turn.family == "select" else {}) for key in turn.keys]
        campaign.take(ended(turn, *parts))
    turns = Counter()
    for _ in range(30):
        turn = campaign.next_job()
        turns[turn.family] += 1
        campaign.take(ended(turn, *map(fared, turn.keys)))
    assert turns == {"attempts": 20, "select": 10}


def test_every_round_has_a_seed_of_its_own_that_comes_from_the_campaigns(campaign):
    def jobs(seed):
        checker = replace(campaign.checker, seed=seed)
        made = Campaign(checker=checker, ids=campaign.ids, seconds=60.0, tell=print, announce=print)
        return [(one.family, one.seed) for one in (made.next_job() for _ in range(8))]

    assert jobs(0) == jobs(0)
    assert len({seed for _, seed in jobs(0) + jobs(1)}) == 16


def test_what_was_not_reached_is_unwitnessed_and_the_state_is_one_line(campaign):
    campaign.take(ended(job(("select.pure", 0)), fared(("select.pure", 0))))
    fits, pure, _ = campaign.report().results
    assert (fits.outcome, fits.examples) == ("unwitnessed", 0)
    assert "never came up in 10 examples" in pure.message
    assert campaign.report().results[2].message == "no case was answered before the time was up"
    assert state(campaign).startswith("1:00 left, 10 examples (")
    assert state(campaign).endswith(" a second), 0 of 4 witnesses met, 0 invariants violated")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("5", 5), ("0.5m", 30)])
def test_times_are_read_as_people_write_them(text, seconds):
    assert duration(None, None, text) == seconds


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--max-time", "0"], "'0' is no time: write 90s, 10m, 2h or a number of seconds above 0"),
        (["--max-time", "ten"], "'ten' is no time"),
        (["--max-time", "-3"], "'-3' is no time"),
        (["--max-time", "1e9"], "'1e9' is no time"),
        (["--max-time", "inf"], "'inf' is no time"),
        (["-n", "0"], "0 is not in the range"),
        (["--select", "select.purr"], "did you mean select.pure"),
        (["--database", "redis://127.0.0.1:1"], "error: no database at redis://127.0.0.1:1: Error 111"),
        (["--ci-database", "absent"], "error: there is no folder absent: "),
        (["--json", "no/such/file"], "error: cannot write no/such/file"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(run, args, sentence):
    code, out, err = run("fuzz", "reference", *args)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_an_unknown_target_is_a_sentence_and_exit_code_2(run):
    code, out, err = run("fuzz", "no-such-engine", "--database", "none")
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown target 'no-such-engine'")
