"""How a check goes: what counts as a failure, an error, a skip or unwitnessed, and what is told on the way."""

import itertools

import pytest

from cpbcg_ref import cases
from cpbcg_ref.checking import session
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.reference import Reference


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
    assert (found.outcome, found.message, found.counterexample) == ("error", "KeyError: 'bucket'", None)


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
    assert found.reproduce.endswith(" --config FILE")


class Disagreeing:
    """Rank 1 always runs eager."""

    def __init__(self, server):
        self.server = Reference().start(server)

    def select(self, batch, cp_rank):
        return None if cp_rank else self.server.select(batch, cp_rank)

    def __getattr__(self, name):
        return getattr(self.server, name)


def test_progress_is_told_family_by_family():
    told = []
    report = session.check(
        "reference", ids=["select.pure", "delay.chunk-counts"], profile="dev", progress=lambda *step: told.append(step)
    )
    assert [(name.split()[0], done, total) for name, done, total in told] == [("reference", n, 2) for n in range(3)]
    assert [one.invariant for one in report.results] == ["select.pure", "delay.chunk-counts"]
    assert any(name.startswith("replay.py:select_replay_bucket") for name in report.executed)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_verdicts_do_not_depend_on_the_number_of_workers(workers):
    found = session.check("reference:hardened", ids=["delay.budget", "select.minimal"], profile="dev", workers=workers)
    assert [(one.outcome, one.examples) for one in found.results] == [("pass", 75), ("pass", 180)]
