"""Proofs: symbolic runs, closed forms tied to the code, theorems that hold, statements and engines that do not."""

import json
import re
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, product
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("z3", reason="proofs need z3: pip install 'cpbcg[prove]'")

import z3

import cpbcg_ref
from cpbcg_ref.cli import main
from cpbcg_ref.proving import negotiation, required, selector, symbolic
from cpbcg_ref.proving.capacity import captured
from cpbcg_ref.proving.closed import extra, n, rows_of
from cpbcg_ref.proving.model import Obligation, Theorem, prove
from cpbcg_ref.proving.run import LIBRARY, prove_all, theorems
from cpbcg_ref.proving.symbolic import (
    HELPERS,
    Int,
    NotAnInt,
    NothingGiven,
    NotTheSame,
    Number,
    Run,
    Table,
    TooManyWays,
    is_a,
    kind,
    merging,
    number,
    paths,
    span,
    truth,
)
from cpbcg_ref.proving.targets import both, symbolic_library
from cpbcg_ref.report import proofs

SCHEMA = json.loads((Path(proofs.__file__).parent / "proofs.schema.json").read_text())
x, y = number("x"), number("y")


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["prove", *words])
    return ended.value.code, capsys.readouterr()


def value(term):
    return z3.simplify(term).as_long()


def test_every_way_through_a_function_is_taken_once_and_the_conditions_split_all_integers():
    taken = list(paths(lambda: (x > 3, bool(x > 3), bool(x > 5), bool(x > 3))[1:], x.term >= 0))
    assert sorted(answer for _, answer in taken) == [(False, False, False), (True, False, True), (True, True, True)]
    for tried in range(9):
        assert sum(z3.Solver().check(x.term == tried, *given) == z3.sat for given, _ in taken) == 1


def test_a_place_in_a_list_forks_into_every_value_that_is_possible():
    taken = paths(lambda: [10, 20, 30][x % 3], x.term >= 0)
    assert sorted(answer for _, answer in taken) == [10, 20, 30]


def test_every_value_of_an_index_is_taken_once_however_z3_would_guess_the_next_time():
    """Two guesses on one way: a way that is run again must not meet other values than the first time."""
    taken = [answer for _, answer in paths(lambda: (range(5)[x % 5], range(3)[y % 3]), x.term >= 0, y.term >= 0)]
    assert sorted(taken) == sorted(product(range(5), range(3)))


def test_a_way_that_is_run_again_takes_the_value_that_it_was_left_with(monkeypatch):
    guesses = iter([2, 1, 0, 2, 1, 0])
    given = Run.guess

    def guess_anew(run, term):
        return (
            given(run, term)
            if run.given.guessed[len(run.guessed) :]
            else (run.guessed.append(g := next(guesses)), g)[1]
        )

    monkeypatch.setattr(Run, "guess", guess_anew)
    assert sorted(answer for _, answer in paths(lambda: [10, 20, 30][x % 3], x.term >= 0)) == [10, 20, 30]


def test_a_function_that_remembers_its_last_run_is_given_up():
    asked = []

    def remembers():
        asked.append(bool(x > len(asked)))

    with pytest.raises(NotTheSame, match="when it ran before"):
        list(paths(remembers))


def test_what_nothing_satisfies_has_no_ways():
    with pytest.raises(NothingGiven):
        list(paths(lambda: bool(x > 0), x.term > 0, x.term < 0))


def test_a_side_that_z3_does_not_know_of_is_taken(monkeypatch):
    solver = type("Gives_up", (), {"check": lambda self, *_: z3.unknown, "add": lambda self, *_: None})()
    run = Run(solver, symbolic.Way())
    assert run.decide((x > 3).term)
    assert [[step.taken for step in way.steps] for way in run.left] == [[False]]


def test_a_truth_equals_what_it_is():
    p, q = truth("p"), truth("q")
    taken = [answer for _, answer in paths(lambda: (bool(p == q), bool(p == True), bool(q == 1), p != q))]  # noqa: E712
    for equal, first, second, different in taken:
        assert equal == (first == second)
        assert (z3.is_false(different.term) or z3.is_true(different.term)) or equal == (first == second)
    assert len(taken) == 4


def test_a_truth_is_found_in_a_dict_and_a_number_is_not_looked_for_there():
    found = {answer for _, answer in paths(lambda: {True: "yes", False: "no"}[truth("p")])}
    assert found == {"yes", "no"}
    with pytest.raises(NotAnInt, match="x has no hash"):
        x in {1, 2}  # noqa: B015


def test_a_table_finds_a_key_by_comparing_it():
    table = Table([(x, "x"), (y, "y")])
    assert {answer for _, answer in paths(lambda: table.get(Number(z3.IntVal(4)), "none"), x.term < y.term)} == {
        "x",
        "y",
        "none",
    }
    assert (list(table), len(table), table[y]) == ([x, y], 2, "y")


def test_division_by_what_may_not_be_positive_is_given_up():
    for divide in (lambda: x // y, lambda: x % -2, lambda: 5 // x, lambda: x // 0):
        with pytest.raises(NotAnInt, match="may be 0 or negative"):
            list(paths(divide))
    assert len(list(paths(lambda: x // y, y.term > 0))) == 1


def test_fractions_are_compared_exactly_or_not_at_all():
    assert sorted(answer for _, answer in paths(lambda: bool(x <= 2.0))) == [False, True]
    assert not bool(x == 2.5)
    for wrong in (lambda: x < 2.5, lambda: x + 0.5, lambda: HELPERS["max"](x, 0.5)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(NotAnInt):
        symbolic.term(1.5)


def test_a_number_is_an_int_and_a_truth_a_bool_to_those_who_ask():
    assert is_a(x, int)
    assert is_a(x, Int)
    assert isinstance(3, Int)
    assert not is_a(x, bool)
    assert is_a(truth("p"), bool)
    assert not is_a("3", (Int, float))


def test_a_function_that_never_stops_forking_is_given_up(monkeypatch):
    monkeypatch.setattr(symbolic, "MOST_FORKS", 20)

    def forever():
        count = 0
        while x > count:
            count += 1

    with pytest.raises(TooManyWays, match="more than 20 conditions"):
        list(paths(forever, x.term >= 0))
    monkeypatch.setattr(symbolic, "MOST_WAYS", 4)
    with pytest.raises(TooManyWays, match="more than 4 ways"):
        list(paths(lambda: [*range(8)][x % 8], x.term >= 0))


def test_numbers_divide_as_python_does_by_positive_divisors():
    for a, b in product(range(-7, 8), (1, 2, 3)):
        assert value((Number(z3.IntVal(a)) // b).term) == a // b
        assert value((Number(z3.IntVal(a)) % b).term) == a % b
        assert value((a - Number(z3.IntVal(b))).term) == a - b


def test_the_helpers_are_the_built_in_functions_wherever_a_number_has_a_value():
    assert Int("12") == 12
    assert {kind(3), kind(x)} == {int}
    assert kind("a") is str
    assert merging(max, lambda a, b: a >= b)([3, 1], default=0) == 3
    assert list(span(2)) == [0, 1]
    assert kind(True) is bool


def test_the_largest_of_several_numbers_is_one_term():
    most = merging(max, lambda a, b: a >= b)(x, 3, y)
    solver = z3.Solver()
    solver.add(x.term == 1, y.term == 5, most.term != 5)
    assert solver.check() == z3.unsat


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4])
def test_the_closed_forms_are_the_rows_of_the_library_for_all_small_batches(cp_size):
    for lengths in combinations_with_replacement(range(4 * cp_size + 2), 2):
        owned = list(cpbcg_ref.per_rank_logical_tokens(lengths, cp_size=cp_size))
        assert [value(rows) for rows in rows_of([*map(z3.IntVal, lengths)], cp_size)] == owned
    for length in range(4 * cp_size + 2):
        base, remainder = divmod(length, 2 * cp_size)
        more = [z3.substitute(extra(rank, z3.IntVal(remainder)), (n, z3.IntVal(cp_size))) for rank in range(cp_size)]
        owned = cpbcg_ref.per_rank_logical_tokens([length], cp_size=cp_size)
        assert [2 * base + value(one) for one in more] == list(owned)


@pytest.mark.parametrize("cp_size", [2, 3, 4])
def test_the_captured_rows_of_a_bucket_are_those_of_the_capture_table(cp_size):
    for bucket in range(2 * cp_size, 5 * cp_size * cp_size):
        table = cpbcg_ref.CaptureTable(ladder=(bucket,), cp_size=cp_size, context_length=bucket)
        assert value(captured(z3.IntVal(bucket), cp_size)) == table.bucket_local_tokens[bucket]


@pytest.mark.parametrize(("cp_size", "requests", "most"), [(2, 1, 30), (2, 2, 20), (2, 3, 14), (2, 4, 9), (3, 3, 12)])
def test_the_exact_slack_is_exact_on_all_small_batches(cp_size, requests, most):
    """By brute force: enough for every batch, and one token less is not enough for some."""
    slack, too_small = 2 * (cp_size - 1) * ((requests - 1) // 2), 0
    for lengths in combinations_with_replacement(range(1, most + 1), requests):
        rows = partial(cpbcg_ref.required_local_tokens, cp_size=cp_size)
        assert rows(lengths) <= rows([sum(lengths) + slack])
        too_small += rows(lengths) > rows([sum(lengths) + slack - 1])
    assert too_small


def test_rows_stay_within_their_bound_and_reach_it_on_all_small_batches():
    for cp_size, requests in product((2, 3), (1, 2, 3)):
        gaps = []
        for lengths in combinations_with_replacement(range(1, 4 * cp_size), requests):
            bound = -(-sum(lengths) // cp_size) + requests - -(-requests // cp_size)
            gaps.append(bound - max(cpbcg_ref.per_rank_logical_tokens(lengths, cp_size=cp_size)))
        assert min(gaps) == 0


QUICK = [one for one in LIBRARY if one not in negotiation.THEOREMS]


@pytest.mark.parametrize("theorem", QUICK, ids=lambda one: one.name)
def test_a_theorem_is_proved_and_its_control_is_refuted_by_the_code(theorem):
    found = prove(theorem)
    assert (found.proved, found.undecided) == (True, "")
    assert found.shown


@pytest.mark.parametrize("theorem", negotiation.THEOREMS, ids=lambda one: one.name)
def test_a_theorem_of_the_negotiation_is_proved(theorem, monkeypatch):
    monkeypatch.setattr(negotiation, "SITUATIONS", negotiation.SITUATIONS[::9])
    found = prove(theorem)
    assert (found.proved, found.undecided) == (True, "")
    assert found.shown


def test_there_are_at_least_twelve_theorems_each_with_its_own_name():
    names = [one.name for one in theorems("reference", both("reference"))]
    assert len({*names}) == len(names) >= 12


def theorem(claim, *, control=None, replay=lambda model: "so it is", confirm=lambda model: ""):
    made = {"name": "toy", "statement": "It holds.", "wrong": "More holds.", "confirm": confirm}
    return Theorem(claim=claim, control=control or claim, replay=replay, **made)


def test_a_statement_that_does_not_hold_is_refuted_with_the_integers():
    odd = theorem(lambda: [Obligation((x.term > 4,), x.term % 2 == 1)], confirm=lambda model: f"x is {model['x']}")
    found = prove(odd)
    assert not found.proved
    assert found.broken["x"] % 2 == 0
    assert found.refuted == f"x is {found.broken['x']}"


def test_integers_that_the_code_does_not_confirm_refute_nothing():
    found = prove(theorem(lambda: [Obligation((), x.term > 4)], confirm=lambda model: ""))
    assert (found.proved, found.refuted) == (False, "")
    assert "the code does not show" in found.undecided


def test_what_is_claimed_where_nothing_is_given_is_undecided():
    found = prove(theorem(lambda: [Obligation((x.term > 0, x.term < 0), x.term > 4, "one step")]))
    assert (found.proved, found.undecided) == (False, "Undecided: one step: nothing satisfies what is given")


def test_a_theorem_without_obligations_is_not_proved():
    assert not prove(theorem(tuple)).proved


def test_a_control_that_holds_or_that_the_code_does_not_show_is_not_refuted():
    true, false = [Obligation((), z3.BoolVal(True))], [Obligation((), x.term > 0)]
    assert not prove(theorem(lambda: true, control=lambda: true)).control_refuted
    assert not prove(theorem(lambda: true, control=lambda: false, replay=lambda model: "")).control_refuted
    assert prove(theorem(lambda: true, control=lambda: false)).control_refuted


def test_an_engine_that_raises_on_numbers_without_a_value_is_undecided():
    def raises():
        raise TypeError("an integer is required")

    assert prove(theorem(raises)).undecided == "TypeError: an integer is required"


@pytest.fixture
def few_buckets(monkeypatch):
    """And few requests: seconds less, the same code."""
    monkeypatch.setattr(selector, "BUCKETS", 2)
    monkeypatch.setattr(selector, "FLOORED", 2)
    monkeypatch.setattr(required, "FEW", ((2, 1), (2, 2)))


WRONG = {
    "min-for-max": "required-rows",
    "alignment-per-request": "required-bound",
    "overflow": "selector-fits",
    "no-padding-bound": "selector-padding-bound",
    "bound-strict": "selector-complete",
    "floor-ignored": "selector-floor",
    "floor-lowers-the-bound": "selector-complete",
    "tiny-floor": "selector-floor",
}


@pytest.mark.parametrize(("fault", "wrong"), WRONG.items())
def test_a_wrong_engine_is_refuted_with_what_it_answers(fault, wrong, few_buckets):
    asked = {one.name: one for one in theorems(f"fault:{fault}", both(f"fault:{fault}"))}
    assert re.search("captured|required", prove(asked[wrong]).refuted)
    other = "selector-fits" if wrong.startswith("required") else "required-several"
    assert prove(asked[other]).refuted == ""


def test_a_wrong_engine_ends_the_command_with_1(capsys, few_buckets):
    code, told = run(capsys, "fault:overflow", "--select", "selector-fits")
    assert code == 1
    assert "selector-fits: refuted" in told.out
    assert "does not hold" in told.out


def test_the_functions_of_the_reference_are_proved_and_those_that_ran_are_named(few_buckets):
    asked = ("required-rows", "selector-never-eager", "selector-monotone")
    found = prove_all("reference", names=asked.__contains__)
    assert [(one.theorem.name, one.proved, bool(one.shown)) for one in found.proved] == [
        (name, True, True) for name in asked
    ]
    assert {"replay.py:smallest_bucket", "layout.py:Zigzag.most"} <= {name.split("/")[-1] for name in found.executed}


def test_the_reference_itself_keeps_its_built_in_functions():
    both("reference")
    both("fault:bound-strict")
    assert not {"type", "int", "max"} & {*vars(cpbcg_ref.layout), *vars(cpbcg_ref.errors)}
    assert not {"type", "int", "max"} & {*vars(sys.modules["cpbcg_bound_strict.replay"])}


def test_a_count_of_delays_that_starts_again_is_not_bounded(monkeypatch):
    """Each delay counts as the first: no count reaches the bound, so none is released by it."""
    delayer = symbolic_library().delayer
    counts = delayer.negotiate

    def forgets(table, state, config, **clock):
        made = counts(table, state, config, **clock)
        again = delayer.DelayerState(delayed_passes=1, started_ms=0, free_pass_used=made.state.free_pass_used)
        return made if made.allow else replace(made, state=again)

    monkeypatch.setattr(symbolic_library(), "negotiate", forgets)
    monkeypatch.setattr(negotiation, "SITUATIONS", (negotiation.Situation(ranks=1),))
    found = prove(next(one for one in negotiation.THEOREMS if one.name == "bounded-passes"))
    assert not found.proved
    assert found.broken["delayed_passes"] >= 1


def test_a_clock_that_is_read_after_the_gather_breaks_the_agreement(monkeypatch):
    delayer = symbolic_library().delayer
    negotiate = delayer.negotiate

    def reads_its_clock(table, state, config, *, now_ms):
        late = now_ms - state.started_ms >= config.max_delay_ms
        return negotiate([replace(row, timer_expired=late) for row in table], state, config, now_ms=now_ms)

    monkeypatch.setattr(symbolic_library(), "negotiate", reads_its_clock)
    monkeypatch.setattr(negotiation, "SITUATIONS", (negotiation.Situation(),))
    found = prove(next(one for one in negotiation.THEOREMS if one.name == "negotiation-agrees"))
    assert not found.proved
    assert found.broken["now_ms_0"] != found.broken["now_ms_1"]


def test_the_command_prints_statement_verdict_and_what_the_code_says(capsys):
    code, told = run(capsys, "--select", "blocks-*, exact-slack")
    assert code == 0
    assert "exact-slack: proved" in told.out
    wrong = r"wrong, and refuted: All blocks of a request are equally long\. \d+ tokens on 2 ranks: blocks of \["
    assert re.search(wrong, " ".join(told.out.split()))
    assert told.out.endswith("2 proved\n")


def test_the_json_is_as_its_schema_says(capsys):
    code, told = run(capsys, "--select", "two-requests", "--json", "-")
    document = json.loads(told.out)
    jsonschema.validate(document, SCHEMA)
    (one,) = document["theorems"]
    assert (code, one["proved"], one["control_refuted"], one["source"]) == (0, True, True, "sglang#33906")
    assert set(one["model"]) == {"bucket", "length_0", "length_1", "length_2"}


def test_a_name_that_no_theorem_has_is_a_usage_error(capsys):
    code, told = run(capsys, "--select", "nosuch")
    assert code == 2
    assert "no theorem is called nosuch" in told.err


def test_without_z3_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, told = run(capsys)
    assert code == 2
    assert "pip install 'cpbcg[prove]'" in told.err


RELEASES = ("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")


def test_a_release_is_proved_by_its_own_functions(release, few_buckets):
    release("0.5.23")
    asked = ("metadata", "required-slack", "selector-fits")
    found = prove_all("sglang==0.5.23", names=asked.__contains__, workers=1)
    assert [(one.theorem.name, one.proved, bool(one.shown)) for one in found.proved] == [
        (name, True, True) for name in asked
    ]
    assert {
        "PrefillCPBCGInput.select_replay_bucket",
        "PrefillCPBCGInput.required_local_tokens",
        "ZigzagCPStrategy.build_metadata",
    } <= {name.split(":")[1] for name in found.executed}


@pytest.mark.parametrize("version", RELEASES)
def test_layout_capacity_and_selector_of_every_release_are_proved(request, release, version):
    if not request.config.getoption("--every-release"):
        pytest.skip("nightly: --every-release proves it for all releases with a selector")
    release(version)
    found = prove_all(f"sglang=={version}")
    assert [one.theorem.name for one in found.proved if not (one.proved and one.control_refuted)] == []
    assert len(found.proved) == 12


def test_the_index_of_a_release_and_the_gather_of_the_library_restore_as_the_closed_form_says(release):
    """The place of block c of request i, all small groups: rank-major, early blocks of all requests before late."""
    process = release("0.5.23").process
    for ranks, requests in product(range(2, 6), range(1, 6)):
        lengths = [2 * ranks + i for i in range(requests)]
        blocks = range(2 * ranks)
        place = [
            2 * requests * min(block, 2 * ranks - 1 - block) + (i if block < ranks else requests + i)
            for i, block in product(range(requests), blocks)
        ]
        made = process.enter(ranks, "zigzag", 0).build_metadata(sum(lengths), lengths, lengths)
        assert list(made.cp_reverse_index) == place
        gathered = [token for own in cpbcg_ref.local_tokens([2 * ranks] * requests, cp_size=ranks) for token in own]
        assert [gathered[at] for at in place] == sorted(gathered)


def test_the_page_has_every_theorem_as_it_is_stated():
    page = (Path(__file__).parents[1] / "docs" / "proofs.md").read_text()
    stated = theorems("reference", both("reference"))
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    assert [*rows] == [*[one.name for one in stated], "metadata"]
    for one in stated:
        assert f"| {one.statement} |" in rows[one.name]
        assert f"| {one.wrong} *" in rows[one.name]
