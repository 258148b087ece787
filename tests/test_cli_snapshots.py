"""What people read, as literal text: a change here is a change that they see."""

import ast
import dataclasses
import io
import json
import re
import signal

import pytest
from made_report import PYTHON, RESULTS, made_report

from cpbcg_ref import cases, cli
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.report.jsonreport import answers
from cpbcg_ref.report.statistics import show_statistics
from cpbcg_ref.report.terminal import Printer, show_check

FULL = """\
executed 3 functions in 2 files of the engine:
  sglang/srt/cp.py: Layout.rows, shard
  sglang/srt/delayer.py: negotiate

invariant             level   outcome      examples  seconds
layout.bijection      MUST    pass              150     0.31
capacity.no-overflow  MUST    fail               31     1.25
select.minimal        MUST    unwitnessed       400     0.00
replay.safe-fallback  MUST    error               0     0.00
delay.budget          SHOULD  fail               12     0.00
data.in-bounds        MUST    skip                0     0.00
data.history-free     MUST    skip                0     0.00

FAIL capacity.no-overflow: 16 live rows on rank 0 but 8 captured in bucket 27 for lengths [9, 9,
    9]: the simplest overflow

    rank  rows  needs
       0     9     16
       1     6     16

  smallest case, to pin on any test with @given(case=cases_for(...)),
  after `from hypothesis import example` and `from cpbcg_ref.cases import *`:
    @example(case=ReplayCase(server=Server(cp_size=4, capture_num_tokens=(27, 48),
        context_length=64, strategy='zigzag', max_padding_factor=2, min_replay_bucket=0),
        batches=(Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0), lengths_known=True),)))

  reproduce:
    cpbcg check sglang==0.5.17 --select capacity.no-overflow --profile ci --seed 0

ADVICE delay.budget: rank 1 waited 12 passes

    pass  verdict
       0  delay

  smallest case, to pin on any test with @given(case=cases_for(...)),
  after `from hypothesis import example` and `from cpbcg_ref.cases import *`:
    @example(case=ReplayCase(server=Server(cp_size=4, capture_num_tokens=(27, 48),
        context_length=64, strategy='zigzag', max_padding_factor=2, min_replay_bucket=0),
        batches=(Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0), lengths_known=True),)))

  reproduce:
    cpbcg check sglang==0.5.17 --select delay.budget --profile ci --seed 0

ERROR replay.safe-fallback: KeyError: 'cp'
UNWITNESSED select.minimal: never came up in 400 examples: a smaller bucket holds the tokens but
    not the rows
SKIP data.in-bounds, data.history-free: the adapter has no replay_data

sglang 0.5.17: 1 MUST violated, 1 SHOULD violated, 1 error, 1 unwitnessed, 1 pass, 2 skip
593 verdicts in 4.2 s, profile ci, seed 0, exit code 1
"""


STATISTICS = """\
statistics (a second: how fast its cases were made, asked and judged, together with the other
    invariants asked with them)
  layout.bijection: pass, 3000 examples, 1200 a second; 3000 examples of the profile
       6 %    190  a prefix
     < 1 %      1  spare rows
     never      0  at most two rows
     100 %   3000  several requests
  capacity.no-overflow: fail, 1 example, 0.4 a second; first failure at example 1
      10 %      3  remainders pile up

"""

KNOWN = """\
invariant             level   outcome      examples  seconds
delay.budget          SHOULD  fail, known        12     0.00
capacity.no-overflow  MUST    fail               31     1.25

KNOWN delay.budget: rank 1 waited 12 passes
    the policy restarts the budget (https://example.org/1)
    cpbcg check sglang==0.5.17 --select delay.budget --profile ci --seed 0

FAIL capacity.no-overflow: 16 live rows on rank 0 but 8 captured in bucket 27

sglang 0.5.17: 1 MUST violated, 1 SHOULD violated (1 of them known)
43 verdicts in 4.2 s, profile ci, seed 0, exit code 1
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(report, file=None):
    file = file or io.StringIO()
    show_check(report, Printer(file))
    return file.getvalue()


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_whole_report_in_a_pipe():
    assert shown(made_report()) == FULL


def test_statistics_have_a_section_per_invariant_that_was_asked():
    counts = {"a prefix": 190, "spare rows": 1, "at most two rows": 0, "several requests": 3000}
    told = {"examples": 3000, "searched": 2.5, "stopped": "3000 examples of the profile", "witnesses": counts}
    asked = dataclasses.replace(RESULTS[0], **told, shares={name: count / 3000 for name, count in counts.items()})
    failed = dataclasses.replace(RESULTS[1], examples=1, stopped="first failure at example 1")
    file = io.StringIO()
    show_statistics(made_report(results=(asked, failed, RESULTS[-1])), Printer(file))
    assert file.getvalue() == STATISTICS


def test_a_known_failure_is_shown_with_its_reason_and_link_and_without_its_case():
    told = {"known": True, "reason": "the policy restarts the budget", "link": "https://example.org/1"}
    known = dataclasses.replace(RESULTS[4], **told)
    message = "16 live rows on rank 0 but 8 captured in bucket 27"
    new = dataclasses.replace(RESULTS[1], message=message, counterexample=None)
    assert shown(made_report(results=(known, new), executed=())).endswith("\n\n" + KNOWN)


def test_a_pipe_gets_ascii_only_without_colour_or_trailing_blanks():
    text = shown(made_report(about_deployment=True))
    assert text.isascii()
    assert "\x1b" not in text
    assert not re.search(r" $", text, re.MULTILINE)


def test_the_first_line_of_every_failure_is_under_100_columns():
    long = [r for r in RESULTS if r.counterexample]
    firsts = [
        line for line in shown(made_report(results=tuple(long))).split("\n") if line.startswith(("FAIL", "ADVICE"))
    ]
    assert len(firsts) == 2
    assert all(len(line) < 100 for line in firsts)


def test_the_line_as_printed_pins_the_case_on_a_test():
    printed = re.search(r"import \*`:\n(.*?)\n\n", shown(made_report()), re.DOTALL)[1].strip()
    ast.parse(f"{printed}\ndef test_that(case): ...")
    assert eval(printed.removeprefix("@"), vars(cases) | {"example": dict}) == {"case": eval(PYTHON, vars(cases))}


def test_strict_calls_a_violated_should_a_failure():
    text = shown(made_report(strict=True))
    assert "FAIL delay.budget: rank 1 waited 12 passes" in text
    assert "ADVICE" not in text


@pytest.mark.parametrize("columns", ["40", "200"])
@pytest.mark.parametrize(("length", "fits"), [(99, True), (100, False)])
def test_a_finding_that_fits_in_99_columns_is_one_line_on_every_terminal(monkeypatch, columns, length, fits):
    monkeypatch.setenv("COLUMNS", columns)
    start = "FAIL capacity.no-overflow: needs "
    result = dataclasses.replace(RESULTS[1], message="needs " + "12 " * 20 + "9" * (length - len(start) - 60))
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown(made_report(results=(result,)), Terminal()))
    finding = text[text.index(start) :].split("\n\n")[0].split("\n")
    assert (len(finding) == 1) == fits
    assert len(finding[0]) < 100


@pytest.mark.parametrize("columns", ["70", "120"])
def test_a_terminal_gets_colour_and_no_line_of_the_table_wraps(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(made_report(), Terminal())
    assert "\x1b[1;31mfail" in text
    table = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n\n")[1].split("\n")
    assert len(table) == 2 + len(RESULTS)
    assert table[0].split() == ["invariant", "level", "outcome", "examples", "seconds"]
    assert all(len(line) <= int(columns) for line in table)
    assert any(line.startswith("capacity.no-overflow ") and " MUST " in line for line in table)


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown(made_report(), Terminal()))


def test_square_brackets_of_an_engines_message_are_no_markup():
    fine = RESULTS[1]
    text = shown(made_report(results=(fine,)), Terminal())
    assert "[9, 9, 9]" in text


def test_a_deployments_questions_are_answered_by_the_outcomes():
    overflow, *others = sorted(answers(made_report()), key=lambda entry: entry["answer"] != "yes")
    assert overflow == {
        "question": "can this server overflow?",
        "answer": "yes",
        "why": "capacity.no-overflow fail (16 live rows on rank 0 but 8 captured in bucket 27 for lengths [9, 9, 9]: "
        "the simplest overflow), replay.safe-fallback error (KeyError: 'cp')",
    }
    assert {entry["answer"] for entry in others} == {"unknown"}
    assert "can this server overflow? yes: capacity.no-overflow fail (16 live rows" in shown(
        made_report(about_deployment=True)
    )


HELP = """\
Usage: cpbcg [OPTIONS] COMMAND [ARGS]...

  Does an inference engine keep the rules of context-parallel prefill with captured CUDA graphs?

  cpbcg check                      this project's own reference
  cpbcg check sglang==0.5.17       a published release: fetched, never installed
  cpbcg check sglang@~/sglang      your own branch

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
  check       Check an engine and say what it breaks.
  diff        Compare two engines: where do they decide differently?
  engines     List engines, releases and what is cached.
  explain     Work out one batch on one server.
  faults      Does the suite catch engines that are wrong on purpose?
  fuzz        Search an engine until the time is up.
  invariants  Describe the invariants.
  ladder      Which batches does a capture ladder run eager?
  matrix      Check many engines and releases side by side.
  prove       Prove theorems for lengths and queues of any size.
  replay      Ask saved failures again: FIXED or FAILED.
  smoke       Tell a broken adapter from a wrong engine.
  sweep       Every case of a small scope, not only random ones.
"""

CHECK_HELP = """\
Usage: cpbcg check [OPTIONS] [TARGET]

  Check TARGET against the invariants and say what it breaks, with a smallest case.

  TARGET is reference (the default), sglang, sglang==VERSION, sglang==LATEST, sglang@DIR,
  path/to/file.py:Class or package.module:Class.

  cpbcg check sglang==0.5.17 --select capacity.no-overflow
  cpbcg check sglang==0.5.23 --config server.toml
  cpbcg check adapter.py:Engine --json - | jq .summary
  cpbcg check --select 'layout.*' --select select.minimal

  Exit code, the first that applies: 2 the target cannot be obtained, or bad usage; 1 a MUST is
  violated (with --strict a SHOULD too) that --known-failures does not list; 2 an error; 3 a MUST
  is unwitnessed (its interesting case never came up); 0.

Options:
  --profile [dev|ci|nightly]  How hard to look.  [default: ci]
  --select IDS                Only these ids: a,b or family.*; may be repeated.
  --seed INTEGER RANGE        Same seed, same verdict.  [default: 0; x>=0]
  --json FILE                 Write the result as JSON; "-" is stdout.
  --junit FILE                Write the result as JUnit XML.
  --strict                    A violated SHOULD fails the run too.
  --config FILE               Check one deployment, described in TOML.
  --known-failures FILE       TOML: failures that do not change the exit code.
  --statistics                Say per invariant how hard was looked and why it stopped.
  --failures DIR              Folder of saved failures.  [default: per user]
  --no-save                   Do not save failures.
  --allow-unpinned            Fetch a release without a known sha256.
  --jobs N                    Worker processes.  [default: one per core]  [x>=1]
  -h, --help                  Show this message and exit.
"""

GOLDEN = """\
rank  rows
   0   513
   1   511
   2   512
   3   512

required rows, the same on every rank: 520

bucket  captured rows  verdict
  2048            512  too few rows: 512 captured, 520 needed
  2304            576  chosen
  2560            640  fits, 2304 is smaller

chosen: 2304
"""

REFUSED = """\
rank  rows
   0     9
   1     6
   2     6
   3     6

required rows, the same on every rank: 16

bucket  captured rows  verdict
     7              2  too few tokens: 27 needed; too few rows: 2 captured, 16 needed
    32              8  too few rows: 8 captured, 16 needed
    64             16  over 2x: at most 54 tokens allowed

chosen: none, the batch runs eager
"""

TOO_SHORT = """\
rank  rows
   0    26
   1    26
   2    26
   3    25

required rows, the same on every rank: 32

bucket  captured rows  verdict
   128             32  CP is not active for this batch

chosen: none, the batch runs eager
"""

EXPLAIN = "explain --cp-size 4 --lengths"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("--help", HELP),
        ("check --help", CHECK_HELP),
        (f"{EXPLAIN} 1534,161,353 --capture 2048:512,2304:576,2560:640 --align 8", GOLDEN),
        (f"{EXPLAIN} 9,9,9 --capture 7:2,32:8,64:16", REFUSED),
        (f"{EXPLAIN} 100,3 --capture 128:32", TOO_SHORT),
    ],
)
def test_the_text_of_a_command(monkeypatch, capsys, command, text):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        cli.main(command.split())
    assert capsys.readouterr() == (text, "")
    assert end.value.code == 0


def test_explain_as_json_has_the_documented_keys(capsys):
    with pytest.raises(SystemExit):
        cli.main(f"{EXPLAIN} 1534,161,353 --capture 2048:512,2304:576,2560:640 --align 8 --json -".split())
    found = json.loads(capsys.readouterr().out)
    assert found["rows_per_rank"] == [513, 511, 512, 512]
    assert (found["required_local_tokens"], found["chosen"]) == (520, 2304)
    assert found["buckets"][0] == {"bucket": 2048, "captured": 512, "verdict": "too few rows: 512 captured, 520 needed"}


def test_the_python_of_a_case_leaves_defaults_out_and_rebuilds_it():
    batch = cases.Batch(lengths=(9,), prefixes=(0,))
    case = cases.ReplayCase(
        server=cases.Server(cp_size=4, capture_num_tokens=(27, 48), context_length=64, strategy="interleave"),
        batches=(batch,),
    )
    python = as_python(case)
    assert python == (
        "ReplayCase(server=Server(cp_size=4, capture_num_tokens=(27, 48), context_length=64, strategy='interleave'), "
        "batches=(Batch(lengths=(9,), prefixes=(0,)),))"
    )
    assert eval(python, vars(cases)) == case
