"""The array form of required_local_tokens: the numbers of the plain one, and nothing that it would refuse."""

from itertools import product
from random import Random

import pytest

import cpbcg_ref
from cpbcg_ref import InvalidInput

np = pytest.importorskip("numpy")
batched = pytest.importorskip("cpbcg_ref.batched")

GROUPS = [{"cp_size": n, "strategy": name} for n in (1, 2, 3, 4, 8, 16) for name in ("zigzag", "interleave")]
array = np.array


def rows(batches, **group):
    """The same batches, one after the other."""
    lengths = [length for batch in batches for length in batch]
    offsets = np.cumsum([0, *map(len, batches)])
    return batched.required_local_tokens(array(lengths, dtype=np.int64), offsets, **group).tolist()


def one_by_one(batches, **group):
    return [cpbcg_ref.required_local_tokens(list(batch), **group) or 0 for batch in batches]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_every_small_batch_has_the_rows_of_the_plain_function(group):
    batches = [batch for requests in range(4) for batch in product(range(9), repeat=requests)]
    assert rows(batches, **group) == one_by_one(batches, **group)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_long_batches_of_different_sizes_have_the_rows_of_the_plain_function(group):
    draw = Random(0)
    batches = [[draw.randrange(5000) for _ in range(draw.randrange(80))] for _ in range(60)]
    assert rows(batches, **group) == one_by_one(batches, **group)
    assert rows(batches, alignment=7, **group) == one_by_one(batches, alignment=7, **group)


@pytest.mark.parametrize("at_once", [1, 2, 7, 100])
def test_rows_do_not_depend_on_how_many_requests_are_taken_at_once(monkeypatch, at_once):
    draw = Random(1)
    batches = [[draw.randrange(60) for _ in range(draw.choice([0, 1, 2, 3, 20]))] for _ in range(50)]
    monkeypatch.setattr(batched, "AT_ONCE", at_once)
    assert len(list(batched.parts(array([0, 100, 100, 300])))) == 2
    assert rows(batches, cp_size=4) == one_by_one(batches, cp_size=4)


def test_golden_numbers():
    assert rows([[1534, 161, 353], [9, 9, 9], [9] * 16, [9] * 200], cp_size=4) == [520, 16, 48, 600]


def test_an_empty_batch_has_no_rows_wherever_it_stands():
    assert rows([[], [16], [], []], cp_size=4) == [0, 8, 0, 0]
    assert rows([[]], cp_size=4) == [0]
    assert rows([], cp_size=4) == []


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint16, np.uint64])
def test_arithmetic_does_not_depend_on_the_integer_type(dtype):
    lengths, offsets = array([127] * 300, dtype=dtype), array([0, 300])
    assert batched.required_local_tokens(lengths, offsets, cp_size=2).tolist() == one_by_one([[127] * 300], cp_size=2)


def test_nothing_that_is_passed_is_changed():
    lengths, offsets = array([9, 9, 9]), array([0, 3])
    batched.required_local_tokens(lengths, offsets, cp_size=4)
    assert (lengths.tolist(), offsets.tolist()) == ([9, 9, 9], [0, 3])


@pytest.mark.parametrize(
    ("lengths", "offsets", "text"),
    [
        ([9, 9], array([0, 2]), r"^lengths is \[9, 9\]: pass a NumPy array of one axis and an integer type$"),
        (array([9.0]), array([0, 1]), "^lengths is .*: pass a NumPy array"),
        (array([True]), array([0, 1]), "^lengths is .*: pass a NumPy array"),
        (array([[9]]), array([0, 1]), "^lengths is .*: pass a NumPy array"),
        (array([0, -1, 9, -2]), array([0, 4]), r"^lengths\[1\] is -1: a length is an integer >= 0 \(tokens\)$"),
        (array([2**61] * 3), array([0, 3]), "^the longest of lengths is 2305843009213693952: all batches together"),
        (array([9]), [0, 1], r"^offsets is \[0, 1\]: pass a NumPy array"),
        (array([9]), array([], dtype=int), r"^offsets is \[\]: they ascend from 0 to the number of lengths, 1$"),
        (array([9]), array([0, 2]), r"^offsets is \[0, 2\]: they ascend"),
        (array([9]), array([1, 1]), r"^offsets is \[1, 1\]: they ascend"),
        (array([9, 9]), array([0, 2, 1, 2]), r"^offsets is \[0, 2, 1, 2\]: they ascend"),
    ],
)
def test_what_is_no_batch_is_refused(lengths, offsets, text):
    with pytest.raises(InvalidInput, match=text):
        batched.required_local_tokens(lengths, offsets, cp_size=4)


def test_a_length_that_only_fits_without_a_sign_is_refused():
    with pytest.raises(InvalidInput, match=r"^the longest of lengths is 18446744073709551615: "):
        batched.required_local_tokens(array([2**64 - 1], dtype=np.uint64), array([0, 1]), cp_size=4)


@pytest.mark.parametrize("wrong", [{"cp_size": 0}, {"cp_size": True}, {"strategy": "ring"}, {"alignment": 0}], ids=str)
def test_a_group_is_refused_as_by_the_plain_function(wrong):
    with pytest.raises(InvalidInput) as plain:
        cpbcg_ref.required_local_tokens([9], **{"cp_size": 4} | wrong)
    with pytest.raises(InvalidInput) as here:
        batched.required_local_tokens(array([9]), array([0, 1]), **{"cp_size": 4} | wrong)
    assert str(here.value) == str(plain.value)
