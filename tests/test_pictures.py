"""The plain text beside a violation, one per kind of case."""

from dataclasses import replace

import pytest
from test_invariants_layout import RIGHT, ZIGZAG
from test_invariants_replay import GOOD, LADDER, NO_BUCKET
from test_invariants_select import GOLDEN

from cpbcg_ref.answers import (
    AttemptsSeen,
    BadLayoutSeen,
    CaptureSeen,
    LastPassSeen,
    LayoutSeen,
    PassesSeen,
    Raised,
    SelectPairSeen,
    SelectSeen,
    Verdict,
)
from cpbcg_ref.cases import (
    Attempt,
    AttemptsCase,
    BadLayoutCase,
    DelayerConfig,
    LastPassCase,
    PassesCase,
    RankReport,
    SelectPairCase,
)
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.pictures import beside, picture

CONFIG = DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=64)
REPORTS = (RankReport(prefillable=True, running_batch=8, now_ms=499.9), RankReport(prefillable=False, token_usage=0.5))
DELAY = Verdict(allow=False, reason="delay", wait_passes=1, episode_open=True, delayed_passes=1, free_pass_used=True)
RAISED = Raised("ValueError", "a clock", "delayer.py:1")
HEAD = "pass  rank  prefillable  usage  running  size  waiting  clock ms  verdict     reason  wait"
ROWS = [
    "1     0     True         1      8        0     0        499.9     delay       delay   1",
    "1     1     False        0.5    0        0     0        0         ValueError",
    "ValueError: a clock (delayer.py:1)",
]
SELECTED = [
    "2048 tokens, 520 rows per rank: answered 2048",
    "bucket  captured rows  by the specification",
    "2048    512            too few rows: 512 captured, 520 needed",
    "2304    576            chosen",
    "2560    640            fits, 2304 is smaller",
    "2816    -              not captured, or rows unknown",
]
ANSWER = SelectSeen(answer=2048, again=2048)


@pytest.mark.parametrize(
    ("case", "seen", "lines"),
    [
        (
            ZIGZAG,
            replace(RIGHT, lengths=None),
            [
                "rank  logical  required  rows                                  segments",
                "0     5        8         (0, 1, 5, 4, 8, None, None, None)     ((2, 2), (1, 4), (1, 5), (1, 7))",
                "1     4        8         (2, 6, 3, 7, None, None, None, None)  ((1, 3), (1, 5), (1, 4), (1, 6))",
            ],
        ),
        (
            BadLayoutCase(cp_size=2, lengths=(2,)),
            BadLayoutSeen(active=(False, False), rows=((0,), ()), required=()),
            ["rank  active  required  rows", "0     False   -         (0,)", "1     False   -         ()"],
        ),
        (
            ZIGZAG,
            LayoutSeen(rows=((0,), (1,)), lengths=((0, 8), (4, 8))),
            ["rank  rows  lengths", "0     (0,)  (0, 8)", "1     (1,)  (4, 8)"],
        ),
        (
            ZIGZAG,
            LayoutSeen(active=None, rows=Raised("RuntimeError", "empty", "util.py:90")),
            [
                "rank  rows",
                "0     RuntimeError",
                "1     RuntimeError",
                "RuntimeError: empty (util.py:90)",
            ],
        ),
        (GOLDEN, ANSWER, SELECTED),
        (
            SelectPairCase(base=GOLDEN, more=GOLDEN),
            SelectPairSeen(base=ANSWER, more=ANSWER),
            [*SELECTED, "", *SELECTED],
        ),
        (
            LADDER,
            CaptureSeen(ranks=(GOOD, NO_BUCKET)),
            [
                "rank  bucket  captured rows  requests",
                "0     9       8              (9,)",
                "0     16      8              (16,)",
                "0     128     32             (64, 64)",
                "1     -       -              ValueError",
                "ValueError: no bucket is left (bcg.py:5)",
            ],
        ),
        (PassesCase(config=CONFIG, passes=(REPORTS,)), PassesSeen(passes=((DELAY, RAISED),)), [HEAD, *ROWS]),
        (
            AttemptsCase(attempts=(Attempt(admitted=20), Attempt(queue=1))),
            AttemptsSeen(max_prefill_bs=(20, 20)),
            [
                "pass  attempts                                     max_prefill_bs",
                "1     Attempt(admitted=20, queue=0, free_slots=0)  20",
                "2     Attempt(admitted=0, queue=1, free_slots=0)   20",
            ],
        ),
    ],
)
def test_a_picture_shows_every_rank_or_pass_and_each_error_once(case, seen, lines):
    assert picture(case, seen, Contract()).splitlines() == lines


def test_a_pair_of_last_passes_shows_the_history_first():
    case = LastPassCase(config=CONFIG, history=(REPORTS,), last=REPORTS, other_last=REPORTS)
    seen = LastPassSeen(history=((DELAY, DELAY),), last=(DELAY, DELAY), other_last=(DELAY, DELAY))
    starts = [line[:10].strip() for line in picture(case, seen, Contract()).splitlines()]
    assert starts == ["pass", "1", "1", "last", "last", "other last", "other last"]


def test_a_long_answer_is_cut():
    seen = BadLayoutSeen(active=(False,), rows=(tuple(range(99)),), required=())
    _, line = picture(BadLayoutCase(cp_size=1, lengths=(99,)), seen, Contract()).splitlines()
    assert line == "0     False   -         (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12..."


def test_what_an_engine_says_stays_on_its_line_and_commands_no_terminal():
    seen = PassesSeen(passes=((replace(DELAY, reason="a\nb"), Raised("\x1b[2J", "\x07", "x.py:1")),))
    lines = picture(PassesCase(config=CONFIG, passes=(REPORTS,)), seen, Contract()).splitlines()
    assert [line[66:] for line in lines[1:3]] == ["delay    a\\nb    1", "\\x1b[2J"]
    assert lines[3:] == ["\\x1b[2J: \\x07 (x.py:1)"]


def test_beside_each_other_two_engines_have_a_column_each_for_what_differs():
    case, other = AttemptsCase(attempts=(Attempt(queue=1), Attempt(admitted=2))), AttemptsSeen(max_prefill_bs=(0, 2))
    both, names = (AttemptsSeen(max_prefill_bs=(0, RAISED)), other), ("old", "new")
    assert beside(case, both, (Contract(), Contract()), names).splitlines() == [
        "pass  attempts                                    max_prefill_bs old  max_prefill_bs new",
        "1     Attempt(admitted=0, queue=1, free_slots=0)  0                   0",
        "2     Attempt(admitted=2, queue=0, free_slots=0)  ValueError          2",
        "ValueError: a clock (delayer.py:1)",
    ]
    moved = AttemptsSeen(max_prefill_bs=(0, replace(RAISED, message="moved", where="delayer.py:9")))
    alike = beside(case, (both[0], moved), (Contract(), Contract()), names).splitlines()
    assert alike[0] == "pass  attempts                                    max_prefill_bs"
    assert beside(case, (other, other), (Contract(), Contract()), names) == picture(case, other, Contract())


def test_beside_each_other_lines_and_tables_of_two_lengths_stay_whole():
    both, names = (ANSWER, replace(ANSWER, answer=None)), ("old", "new")
    lines = beside(GOLDEN, both, (Contract(), Contract()), names).splitlines()
    asked = "2048 tokens, 520 rows per rank: answered "
    assert lines == ["old:", f"{asked}2048", "new:", f"{asked}-", *SELECTED[1:]]
    captured = (CaptureSeen(ranks=(GOOD,)), CaptureSeen(ranks=(NO_BUCKET,)))
    lines = beside(LADDER, captured, (Contract(), Contract()), names).splitlines()
    assert [line for line in lines if line.endswith(":")] == ["old:", "new:"]
    assert lines[1:5] == picture(LADDER, captured[0], Contract()).splitlines()
