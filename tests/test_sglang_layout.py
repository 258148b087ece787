"""The layout, capacity and selection of published SGLang releases, executed for real."""

import pytest

from cpbcg_ref import asking
from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase, SelectCase

RELEASES = ("0.5.16", "0.5.17", "0.5.18", "0.5.23")
WITH_SELECTOR = ("0.5.18", "0.5.23")
MANY = Batch(lengths=(1534, 161, 353), prefixes=(0, 7, 0))


def ask(engine, batch, *, strategy="zigzag", cp_size=4):
    return asking.ask_layout(engine, LayoutCase(cp_size=cp_size, batch=batch, strategy=strategy, spare_rows=8))


@pytest.mark.parametrize("version", RELEASES)
def test_zigzag_rows_are_those_of_the_specification(release, version):
    seen = ask(release(version), MANY)
    assert seen.active == (True,) * 4
    assert seen.logical == (513, 511, 512, 512)
    assert [len(rows) for rows in seen.rows] == [520] * 4
    assert [len(rows) for rows in seen.spare_rows] == [528] * 4


@pytest.mark.parametrize("version", RELEASES)
def test_a_rank_holds_its_early_blocks_and_then_its_late_blocks(release, version):
    seen = ask(release(version), Batch(lengths=(8, 9), prefixes=(0, 5)), cp_size=2)
    assert seen.rows[1] == (2, 3, 11, 12, 4, 5, 13, 14, *(None,) * 4)
    assert seen.positions[1] == (2, 3, 8, 9, 4, 5, 10, 11, *(0,) * 4)


@pytest.mark.parametrize("strategy", ["zigzag", "interleave"])
@pytest.mark.parametrize("version", RELEASES[1:])
def test_gather_restores_the_batch_on_every_rank(release, version, strategy):
    seen = ask(release(version), MANY, strategy=strategy)
    assert set(seen.restored) == set(seen.spare_restored) == {tuple(range(2048))}
    assert len(seen.restored) == 4


def test_a_gather_that_receives_other_rows_restores_something_else(release):
    engine, how = release("0.5.18"), {"cp_size": 2, "strategy": "zigzag"}
    batch = Batch(lengths=(8,), prefixes=(0,))
    assert engine.gather(batch, [[1, 2, 7, 8], [3, 4, 5, 0]], **how)[0] == [1, 2, 3, 4, 5, 0, 7, 8]


@pytest.mark.parametrize("version", RELEASES)
def test_kv_lengths_are_the_golden_ones(release, version):
    segments = ask(release(version), Batch(lengths=(3670,), prefixes=(1,))).segments
    keys = [tuple(keys for _, keys in blocks) for blocks in segments]
    assert keys == [(460, 3671), (919, 3213), (1378, 2755), (1837, 2296)]


def test_interleave_shards_the_key_count_of_every_token(release):
    segments = ask(release("0.5.23"), Batch(lengths=(3, 2), prefixes=(4, 0)), strategy="interleave", cp_size=2).segments
    assert segments == (((1, 5), (1, 7), (1, 2)), ((1, 6), (1, 1)))


@pytest.mark.parametrize(
    ("lengths", "active"), [((8,), True), ((7,), False), ((100, 3), False), ((), False), ((9, 9, 9), True)]
)
def test_cp_is_active_for_batches_of_long_enough_requests(release, lengths, active):
    batch = Batch(lengths=lengths, prefixes=(0,) * len(lengths))
    answered = release("0.5.18").is_cp_active(batch, cp_size=4, strategy="zigzag", cp_rank=0)
    assert answered is active


def test_a_batch_that_cannot_be_sharded_is_refused_by_the_release_itself(release):
    seen = asking.ask_bad_layout(release("0.5.18"), BadLayoutCase(cp_size=4, lengths=(100, 3)))
    assert seen.active == (False,) * 4
    assert seen.rows.kind == "AssertionError"
    assert seen.rows.where.startswith("utils.py:")


@pytest.mark.parametrize("version", WITH_SELECTOR)
def test_the_selector_gives_the_golden_answers(release, version):
    def select(num_tokens, required, table):
        return asking.ask_select(
            release(version),
            SelectCase(
                num_tokens=num_tokens,
                required_local_tokens=required,
                capture_num_tokens=tuple(table),
                bucket_local_tokens=tuple(table.items()),
            ),
        ).answer

    assert select(2048, 520, {2048: 512, 2304: 576, 2560: 640}) == 2304
    assert select(2048, 520, {2048: 512, 2304: 516}) is None
    assert select(27, 16, {32: 8, 48: 16}) == 48
    assert select(27, 16, {32: 8, 64: 16}) is None
    assert select(1024, 256, {2048: 512}) == 2048
    assert select(1023, 256, {2048: 512}) is None


@pytest.mark.parametrize("version", WITH_SELECTOR)
def test_required_rows_are_the_golden_ones_on_every_rank(release, version):
    engine = release(version)
    for lengths, required in (((1534, 161, 353), 520), ((9, 9, 9), 16), ((9,) * 16, 48), ((9,) * 200, 600)):
        how = {"cp_size": 4, "strategy": "zigzag"}
        assert asking.each_rank(engine, 4, engine.required_local_tokens, list(lengths), **how) == (required,) * 4


def test_unknown_lengths_need_no_known_number_of_rows(release):
    engine = release("0.5.23")
    assert engine.required_local_tokens(None, cp_size=4, strategy="interleave", cp_rank=0) is None
    assert engine.required_local_tokens([10], cp_size=4, strategy="interleave", cp_rank=0) == 4


def test_two_releases_in_one_process_do_not_poison_each_other(release):
    old, new = release("0.5.18"), release("0.5.23")
    how = {"cp_size": 4, "strategy": "zigzag", "cp_rank": 3}
    answers = [engine.required_local_tokens([1534, 161, 353], **how) for engine in (old, new, old)]
    assert answers == [520, 520, 520]


def test_a_release_says_what_it_does_not_have(release):
    assert set(release("0.5.16").unavailable) >= {"replay", "capacity", "selection"}
    assert set(release("0.5.17").unavailable) >= {"capacity", "selection"}
    assert not {"replay", "capacity", "selection", "layout"} & set(release("0.5.18").unavailable)


@pytest.mark.parametrize(
    ("version", "strategies", "graphs", "ladder"),
    [
        ("0.5.16", ("zigzag",), (), 0),
        ("0.5.18", ("zigzag", "interleave"), ("zigzag",), 0),
        ("0.5.21", ("zigzag", "interleave"), ("zigzag",), 0),
        ("0.5.22", ("zigzag", "interleave"), ("zigzag", "interleave"), 1),
        ("0.5.23", ("zigzag", "interleave"), ("zigzag", "interleave"), 1),
    ],
)
def test_what_the_contract_declares_is_found_by_looking(release, version, strategies, graphs, ladder):
    contract = release(version).contract
    assert (contract.strategies, contract.graph_strategies, contract.ladder) == (strategies, graphs, ladder)
