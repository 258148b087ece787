"""How a check goes: what counts as a failure, an error, a skip or unwitnessed, and what is told on the way."""

import itertools
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from cpbcg_ref import answers, cases
from cpbcg_ref.checking import session
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.contract import missing
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.invariants import REGISTRY, model


def result(invariant, *, deployment=None, **members):
    """The verdict on the reference with some members replaced."""
    engine = type("Changed", (Reference,), members)()
    return Checker(engine=engine, target="changed", profile="dev", deployment=deployment).check(invariant)


def test_a_violation_comes_with_the_smallest_case_and_the_command_for_it():
    found = result("select.fits-tokens", select_replay_bucket=lambda self, **question: 1)
    assert found.outcome == "fail"
    assert found.counterexample.case["kind"] == "SelectCase"
    case = eval(found.counterexample.python, vars(cases))
    assert (case.num_tokens, len(case.capture_num_tokens)) == (2, 1)
    assert found.reproduce == "cpbcg check changed --select select.fits-tokens --profile dev --seed 0"


def test_an_exception_of_the_adapter_is_an_error_and_no_verdict():
    found = result("select.pure", select_replay_bucket=lambda self, **question: {}["bucket"])
    assert (found.outcome, found.counterexample) == ("error", None)
    assert re.fullmatch(r"KeyError: 'bucket' \(.*test_checking\.py:\d+\)", found.message)


def test_a_part_that_was_not_asked_is_said_beside_the_pass_of_the_other():
    found = result("select.minimal", unavailable={"selection": "no selector here"})
    assert (found.outcome, found.message) == ("pass", "asked in part only: no selector here")


def test_it_is_no_gap_that_no_lengths_travel_with_the_tokens():
    assert missing(Reference(), "lengths")
    found = result("layout.companions")
    assert (found.outcome, found.message) == ("pass", "")


def test_an_engine_that_exits_is_an_error_and_ends_nothing():
    found = result("select.pure", select_replay_bucket=lambda self, **question: sys.exit(0))
    assert found.outcome == "error"
    assert found.message.startswith("SystemExit: 0 (")


class Counting(Reference):
    """Answers nonsense, and counts how often it was asked."""

    def __init__(self):
        self.asked = 0

    def select_replay_bucket(self, **question):
        self.asked += 1
        return 1


def test_an_invariant_that_failed_before_the_adapter_broke_keeps_its_verdict():
    class Breaks(Counting):
        def select_replay_bucket(self, **question):
            return {}["bucket"] if self.asked > 20 else super().select_replay_bucket(**question)

    found = Checker(engine=Breaks(), target="breaks", profile="dev", known=frozenset({"select.fits-tokens"}))
    found.sweep("select", ["select.fits-tokens", "select.pure"])
    assert [one.outcome for one in found.judged.values()] == ["fail", "error"]


def test_a_case_that_breaks_the_adapter_is_passed_over_in_the_search_for_a_smaller_violation():
    class Fragile(Reference):
        def select_replay_bucket(self, *, num_tokens, **question):
            if 50 < num_tokens <= 100:
                return {}["bucket"]
            return 1 if num_tokens > 100 else super().select_replay_bucket(num_tokens=num_tokens, **question)

    found = Checker(engine=Fragile(), target="fragile", profile="dev").check("select.fits-tokens")
    assert (found.outcome, found.counterexample.case["num_tokens"] > 100) == ("fail", True)


def test_a_worker_that_dies_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text(
        "import os\nfrom cpbcg_ref.engines.reference import Reference\n"
        "class Dies(Reference):\n    def select_replay_bucket(self, **question):\n        os._exit(7)\n"
    )
    with pytest.raises(CpbcgError, match="a worker process died while it ran the engine's code"):
        session.check(f"{tmp_path / 'dies.py'}:Dies", ids=["select.pure"], profile="dev")


def test_asking_an_id_alone_sees_the_cases_that_it_saw_among_all():
    """An unmet witness of one id must not show further cases to another."""

    def seen_by(*ids):
        checker = Checker(engine=Reference(), target="reference", profile="dev", recorded=0)
        checker.sweep("layout", ids)
        return checker.judged["layout.bijection", 0].examples

    never = model.Part(
        family="layout",
        check=lambda case, seen, contract: None,
        needs=(),
        excluded=model.not_excluded,
        witnesses={"never": lambda case, seen: False},
    )
    alone = seen_by("layout.bijection")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            REGISTRY, "layout.never", replace(REGISTRY["layout.bijection"], id="layout.never", parts=(never,))
        )
        assert seen_by("layout.bijection", "layout.never") == alone


@pytest.mark.parametrize(
    ("contract", "invariant", "outcome"),
    [
        ({"cp_sizes": (1,)}, "layout.bijection", "skip"),
        ({"strategies": ("interleave",), "graph_strategies": ("interleave",)}, "layout.balance", "skip"),
        ({"strategies": ("interleave",), "graph_strategies": ("interleave",)}, "capacity.required", "pass"),
        ({"strategies": ("interleave",), "graph_strategies": ("interleave",)}, "capacity.no-overflow", "pass"),
        ({"cp_sizes": (2,)}, "select.without-cp", "pass"),
    ],
)
def test_what_a_contract_excludes_is_neither_demanded_nor_a_crash(contract, invariant, outcome):
    found = result(invariant, contract=replace(Reference.contract, **contract))
    assert (found.outcome, found.message if outcome == "pass" else "") == (outcome, "")


def test_an_inactive_batch_that_replay_takes_is_noticed_although_admission_refused_it():
    found = result("replay.admitted-implies-runs", start=lambda self, server: Willing(server))
    assert found.outcome == "fail"
    assert "unsharded rows to bucket" in found.message


def test_rows_that_a_replay_only_claims_are_noticed():
    found = result("capacity.no-overflow", start=lambda self, server: Claiming(server))
    assert (found.outcome, " replays 1 rows, bucket " in found.message) == ("fail", True)


def test_an_engine_that_answers_differently_when_asked_again_is_an_error():
    calls = itertools.count()

    def select(self, **question):
        return 1 if next(calls) < 10 else Reference().select_replay_bucket(**question)

    found = result("select.fits-tokens", select_replay_bucket=select)
    assert found.outcome == "error"
    assert found.message.startswith("the engine answered the same cases differently when asked again: ")


def test_an_engine_that_captures_nothing_fails_capture_alone_and_leaves_the_rest_unwitnessed():
    def start(self, server):
        raise MemoryError("no graph")

    members = {"start": start, "roots": (__file__,)}
    assert result("capture.legal", **members).outcome == "fail"
    found = result("agree.bucket", **members)
    assert (found.outcome, found.examples) == ("unwitnessed", 0)
    assert found.message == "no case could be put to the engine: every one was refused"


def test_a_table_that_the_deployment_lacks_skips_its_side_and_the_command_names_the_file():
    deployment = cases.Deployment(server=cases.Server(cp_size=2, capture_num_tokens=(8, 16), context_length=16))
    found = result("delay.agree", deployment=deployment)
    assert (found.outcome, found.message) == ("skip", "the configuration has no [delayer]")
    found = result("agree.bucket", deployment=deployment, start=lambda self, server: Disagreeing(server))
    assert found.outcome == "fail"


class Server:
    """The reference's."""

    def __init__(self, server):
        self.server = Reference().start(server)

    def __getattr__(self, name):
        return getattr(self.server, name)


class Disagreeing(Server):
    """Rank 1 always runs eager."""

    def select(self, batch, cp_rank):
        return None if cp_rank else self.server.select(batch, cp_rank)


class Willing(Server):
    """Replays also what admission refuses, on the smallest graph."""

    def load_batch(self, batch, cp_rank):
        if self.server.can_run_graph(batch, cp_rank):
            return self.server.load_batch(batch, cp_rank)
        bucket = self.server.captured(cp_rank).capture_num_tokens[0]
        return answers.Loaded(bucket=bucket, captured_rows=bucket, live_rows=batch.num_tokens)


class Claiming(Server):
    """Says that every graph has one row."""

    def load_batch(self, batch, cp_rank):
        return replace(self.server.load_batch(batch, cp_rank), captured_rows=1)


def test_progress_is_told_family_by_family():
    told = []
    report = session.check(
        "reference",
        ids=["select.fits-rows", "delay.chunk-counts"],
        profile="dev",
        progress=lambda *step: told.append(step),
    )
    assert [(name.split()[0], done, total) for name, done, total in told] == [("reference", n, 2) for n in range(3)]
    assert [one.invariant for one in report.results] == ["select.fits-rows", "delay.chunk-counts"]
    assert any(name.startswith("replay.py:select_replay_bucket") for name in report.executed)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_verdicts_do_not_depend_on_the_number_of_workers(workers):
    found = session.check("reference:hardened", ids=["delay.budget", "select.minimal"], profile="dev", workers=workers)
    assert [(one.outcome, one.examples) for one in found.results] == [("pass", 75), ("pass", 180)]


def test_a_check_leaves_nothing_in_the_working_directory(tmp_path):
    # A process of its own: here pytest has told Hypothesis long ago where to keep its notes.
    command = [sys.executable, "-m", "cpbcg_ref.cli", "check", "--select", "select.pure", "--profile", "dev"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    assert list(tmp_path.iterdir()) == []
