"""Every batch of a small scope: how many there are, that they are judged by definition, and that mistakes are found."""

from random import Random

import numpy as np
import pytest

from cpbcg_ref import batched
from cpbcg_ref.checking.single import violation
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.oracles.tokens import live_rows
from cpbcg_ref.sweeping import batches, ownership
from cpbcg_ref.sweeping.scope import Batches, Scope, representatives
from cpbcg_ref.sweeping.scope import batches as parts_of

PERIODS = {4: (7, 25_736), 8: (4, 38_752), 16: (3, 104_704)}


def swept(engine, **scope):
    """(batches asked, {id: (part, violation)}) of a scope, the first of each id."""
    asked, found = 0, {}
    for part in parts_of(Scope(**scope), engine.contract):
        told = batches.sweep(engine, part)
        asked += told["layouts"]
        found |= {name: one for name, one in told["violations"].items() if name not in found}
    return asked, found


def periods(cp_size, requests, contract):
    scope = Scope(cp_sizes=(cp_size,), requests=requests, length=1)
    return [part for part in parts_of(scope, contract) if part.kind == "remainders"]


@pytest.mark.parametrize(("cp_size", "requests", "count"), [(n, k, count) for n, (k, count) in PERIODS.items()])
def test_multisets_of_remainders_times_sums_of_whole_blocks_are_as_many_as_counted(cp_size, requests, count):
    listed = [batches.array(part, Contract()) for part in periods(cp_size, requests, Contract())]
    assert sum(map(len, listed)) == sum(representatives(cp_size, k) for k in range(1, requests + 1)) == count
    kinds = {
        (*sorted(row % (2 * cp_size)), row.sum() // (2 * cp_size)) for part in listed for row in part if len(row) == 2
    }
    assert len(kinds) == representatives(cp_size, 2)  # none comes twice


def test_these_batches_stand_for_all_lengths():
    """Rows of any active batch are those of one with the same remainders and, modulo cp_size, as many whole blocks."""
    random = Random(0)
    for _ in range(300):
        n, k = random.choice((2, 3, 4, 8)), random.randint(1, 6)
        lengths = [random.randint(2 * n, 20 * n) for _ in range(k)]
        base = sum(length // (2 * n) for length in lengths) - k
        like = [length % (2 * n) + 2 * n for length in lengths]
        like[0] += base % n * 2 * n
        mine, theirs = (max(live_rows(tuple(batch), n, "zigzag")) for batch in (lengths, like))
        assert mine == theirs + 2 * n * (base // n)
        assert -mine % (2 * n) == -theirs % (2 * n)  # so they are aligned alike


@pytest.mark.parametrize("blocks", ["balanced", "ceil"])
@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
def test_rows_of_many_batches_are_those_of_each(strategy, blocks):
    random = Random(1)
    many = [[random.randint(0, 40) for _ in range(3)] for _ in range(50)]
    rows = ownership.loads(np.array(many), cp_size=4, strategy=strategy, blocks=blocks)
    assert rows.tolist() == [list(live_rows(tuple(batch), 4, strategy, blocks)) for batch in many]


def test_the_ladder_beside_a_batch_has_a_bucket_for_every_second_round_of_blocks():
    part = Batches(kind="lengths", strategy="zigzag", cp_size=4, requests=3, length=9)
    assert batches.captured(part, 27, Contract()) == {16: 8, 32: 8}
    assert batches.captured(part, 33, Contract()) == {16: 8, 32: 8, 48: 16}


def test_the_reference_has_no_violation_in_any_of_so_many_batches():
    asked, found = swept(Reference(), cp_sizes=(2, 4), requests=4)
    lengths, remainders, interleaved = 340 + 4_680, 138 + 1_976, 30 + 340  # cp 2 and cp 4
    assert (asked, found) == (lengths + remainders + interleaved, {})


@pytest.mark.parametrize("cp_size", PERIODS)
def test_the_reference_has_no_violation_at_any_length(cp_size, request):
    if cp_size > 4 and not request.config.getoption("--every-release"):
        pytest.skip("3 s at cp 8, 10 s at cp 16; --every-release runs it")
    told = [batches.sweep(Reference(), part) for part in periods(cp_size, PERIODS[cp_size][0], Contract())]
    assert sum(one["layouts"] for one in told) == PERIODS[cp_size][1]
    assert not [one["violations"] for one in told if one["violations"]]


@pytest.mark.parametrize("cp_size", PERIODS)
def test_the_batched_form_has_the_rows_at_any_length(cp_size):
    for part in periods(cp_size, PERIODS[cp_size][0], Contract()):
        asked, how = batches.array(part, Contract()), {"cp_size": cp_size, "strategy": "zigzag"}
        ends = np.arange(0, asked.size + 1, part.requests)
        rows = batched.required_local_tokens(asked.ravel(), ends, cp_size=cp_size)
        assert rows.tolist() == ownership.required(ownership.loads(asked, **how), **how, contract=Contract())


FOUND = {
    "min-for-max": ("capacity.required", 1),
    "rows-averaged": ("capacity.required", 3),
    "alignment-per-request": ("capacity.required", 2),
    "own-rows-required": ("capacity.required", 1),
    "even-share-counted": ("layout.conserves", 1),
    "overflow": ("capacity.no-overflow", 3),
    "bound-strict": ("select.complete", 1),
    "tokens-strict": ("select.minimal", 1),
    "no-padding-bound": ("select.padding-bound", 1),
    "tokens-ignored": ("select.fits-tokens", 1),
}


@pytest.mark.parametrize("key", FOUND)
def test_a_wrong_engine_is_found_by_a_batch_of_few_requests(key):
    name, requests = FOUND[key]
    _, found = swept(resolve(f"fault:{key}"), cp_sizes=(2, 4), requests=3)
    assert found[name]["size"] == requests


@pytest.mark.parametrize("key", ["ceil-chunks", "wider-alignment", "longer-requests", "lengths-that-divide"])
def test_an_engine_that_is_different_and_right_is_not_flagged(key):
    asked, found = swept(resolve(f"variant:{key}"), cp_sizes=(2, 4), requests=2)
    assert asked
    assert not found


def test_what_is_found_is_a_case_that_the_registry_judges_alike():
    from cpbcg_ref import cases

    for key in ("rows-averaged", "overflow", "bound-strict"):
        engine = resolve(f"fault:{key}")
        for name, told in swept(engine, cp_sizes=(2, 4), requests=3)[1].items():
            case = eval(told["case"], vars(cases))
            assert violation(resolve(f"fault:{key}"), name, case), (key, name)
            assert violation(Reference(), name, case) is None


def test_the_release_that_chose_by_tokens_overflows_on_the_smallest_such_batch(release):
    _, found = swept(release("0.5.17"), cp_sizes=(2,), requests=3)
    assert list(found) == ["capacity.no-overflow"]
    assert found["capacity.no-overflow"]["message"] == "[5, 5, 5] needs 12 rows, its bucket 16 has 8"


def test_rows_for_a_layout_without_graphs_are_not_asked(release):
    asked, found = swept(release("0.5.18"), cp_sizes=(2,), requests=1)
    assert "interleave" in release("0.5.18").contract.strategies
    assert (asked, found) == (4 + 8 + 2, {})


def test_the_release_that_chooses_by_rows_does_not(release):
    asked, found = swept(release("0.5.23"), cp_sizes=(2,), requests=3)
    assert (asked, found) == (84 + 68 + 14, {})


def test_the_sentence_has_the_numbers():
    _, found = swept(resolve("fault:rows-averaged"), cp_sizes=(2,), requests=3)
    assert found["capacity.required"]["message"] == "[5, 5, 5] on 2 ranks: required_local_tokens is 8, not 12"


def test_an_engine_that_raises_is_told_with_its_exception():
    class Raises(Reference):
        roots = (__file__,)

        def required_local_tokens(self, lengths, **how):
            raise ValueError("no rows today")

    _, found = swept(Raises(), cp_sizes=(2,), requests=1)
    assert "ValueError: no rows today (test_sweep_batches.py" in found["capacity.required"]["message"]


def test_only_batches_that_the_engine_shards_are_asked():
    class OneAtATime(Reference):
        contract = Contract(max_requests=1, divides=2)

    parts = list(parts_of(Scope(cp_sizes=(2,), requests=4, length=12), OneAtATime.contract))
    assert [(part.kind, part.requests) for part in parts] == [("lengths", 1)]
    assert batches.array(parts[0], OneAtATime.contract).tolist() == [[4], [8], [12]]


def test_large_scopes_are_cut_into_parts_that_fit_and_together_are_whole():
    parts = list(parts_of(Scope(cp_sizes=(8,), requests=6), Contract(strategies=("zigzag",))))
    longest = [part for part in parts if part.requests == 6 and part.kind == "lengths"]
    assert {len(part.begin) for part in longest} == {3}
    assert len(longest) == 16**3
    assert len(batches.array(longest[-1], Contract())) == 16**3
    assert len({part.name for part in parts}) == len(parts)
    periodic = [part for part in parts if part.requests == 6 and part.kind == "remainders"]
    assert sum(len(batches.array(part, Contract())) for part in periodic) == representatives(8, 6)
    assert max(len(batches.array(part, Contract())) for part in periodic) <= 8_192


def test_a_scope_beyond_all_machines_is_refused_with_its_size():
    with pytest.raises(
        InvalidInput, match="requests is 2: cp_size 1024 has 2,148,532,224 batches of as many; the most are"
    ):
        list(parts_of(Scope(cp_sizes=(1024,), requests=4), Contract(strategies=("zigzag",))))
