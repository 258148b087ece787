"""Megatron-core, TransformerEngine and verl answer through their adapters as their code says, right or wrong."""

from dataclasses import replace

import pytest
from toys import judged

from cpbcg_ref.cases import BadLayoutCase, Batch, LayoutCase
from cpbcg_ref.checking.smoke import smoke
from cpbcg_ref.engines.megatron import Megatron
from cpbcg_ref.engines.transformer_engine import TransformerEngine
from cpbcg_ref.engines.verl import ThdEngine, Verl
from cpbcg_ref.errors import TargetError

pytest.importorskip("torch", reason="the code of these engines needs torch: install the torch extra")
GROUP = {"cp_size": 2, "strategy": "zigzag"}
MEGATRON, ENGINE, VERL = ("megatron-core", "0.16.1"), ("transformer-engine", "2.20.2"), ("verl", "0.9.1")
ATTENTION = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
PACKING = "verl/models/mcore/util.py"
FILES = {
    MEGATRON: [
        "megatron/core/utils.py",
        "megatron/core/package_info.py",
        "megatron/core/inference/batch_dimensions_utils.py",
    ],
    ENGINE: [ATTENTION],
    VERL: [PACKING],
}
ADAPTERS = {MEGATRON: Megatron, ENGINE: TransformerEngine, VERL: Verl}


def batch(*lengths):
    return Batch(lengths=lengths, prefixes=(0,) * len(lengths))


def test_megatron_slices_a_row_and_the_lengths_beside_it(release):
    engine = release("0.16.1", "megatron-core")
    assert engine.shard(batch(8), list(range(1, 9)), **GROUP) == [[1, 2, 7, 8], [3, 4, 5, 6]]
    assert engine.shard_positions(batch(8), list(range(8)), **GROUP) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert engine.shard_lengths(batch(4, 4), list(range(8)), [0, 4, 8, 8], **GROUP) == [[0, 8], [4, 8]]


# Blocks 01 2 3 4 with three rows of padding, and 5 6 7 with one: each padded to 2 x cp.
PADDED = [[1, 2, 0, 0, 6, 0], [3, 4, 5, 0, 7, 8]]


def test_transformer_engine_pads_each_sequence_and_numbers_its_padding_too(release):
    engine = release("2.20.2", "transformer-engine")
    assert engine.shard(batch(5, 3), list(range(1, 9)), **GROUP) == PADDED
    assert engine.shard(batch(5, 3), list(range(1, 9)), padding_factor=6, **GROUP) == [[1, 4, 6, 0], [2, 3, 7, 8]]
    assert engine.shard_positions(batch(5, 3), list(range(8)), **GROUP) == [[0, 1, 6, 7, 0, 3], [2, 3, 4, 5, 1, 2]]
    assert engine.logical_rows(batch(5, 3), **GROUP) == [3, 5]
    assert engine.shard_lengths(batch(5, 3), [], [0, 5, 8, 8], **GROUP) == [[0, 2, 3, 3], [0, 3, 5, 5]]


def test_verl_packs_sequences_and_puts_them_together_again(release):
    engine = release("0.9.1", "verl")
    assert engine.shard(batch(5, 3), list(range(1, 9)), **GROUP) == PADDED
    assert engine.gather(batch(5, 3), PADDED, **GROUP) == [list(range(1, 9))] * 2
    assert engine.gather(batch(5, 3), [PADDED[1], PADDED[0]], **GROUP) == [[3, 4, 1, 2, 0, 7, 6, 0]] * 2


def test_verl_packs_a_nested_tensor_likewise_and_numbers_what_it_packs(release_folder):
    engine = ThdEngine(release_folder("0.9.1", "verl"), "0.9.1")
    assert engine.shard(batch(5, 3), list(range(1, 9)), **GROUP) == PADDED
    assert engine.shard_positions(batch(5, 3), list(range(8)), **GROUP) == [[0, 1, 0, 0, 0, 0], [2, 3, 4, 0, 1, 2]]
    assert engine.gather(batch(5, 3), PADDED, **GROUP) == [list(range(1, 9))] * 2
    case = BadLayoutCase(cp_size=2, lengths=(4,), padding_factor=6)
    assert judged(engine, "layout.bad-input", case).startswith("padded to multiples of 6 without an error, but 2 of 4")
    assert judged(engine, "layout.bad-input", replace(case, padding_factor=8)) is None


def test_verl_once_neither_numbered_a_nested_tensor_nor_padded_it_to_a_bucket(release_folder):
    engine = ThdEngine(release_folder("0.7.0", "verl"), "0.7.0")
    assert engine.shard(batch(5, 3), list(range(1, 9)), **GROUP) == PADDED
    assert engine.gather(batch(5, 3), PADDED, **GROUP) == [list(range(1, 9))] * 2
    assert engine.unavailable["positions"] == "this release does not number what it packs"
    assert not engine.contract.padding_factor


def test_an_adapter_whose_engine_gathers_into_floats_is_not_broken(release_folder):
    lines = smoke(ThdEngine(release_folder("0.7.0", "verl"), "0.7.0"))
    assert {line.asked: line.state for line in lines if line.state != "not offered"} == dict.fromkeys(
        ("attributes", "contract", "layout", "gather"), "ok"
    )


def copied(release_folder, tmp_path, which, old="", new=""):
    """The adapter on a copy of the release, with one text instead of another in the first of its files."""
    name, version = which
    texts = {file: (release_folder(version, name) / file).read_text() for file in FILES[which]}
    first = FILES[which][0]
    assert old in texts[first]
    texts[first] = texts[first].replace(old, new)
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return ADAPTERS[which](tmp_path, version)


SOME = LayoutCase(cp_size=2, batch=batch(5, 3))
EDITS = [
    (MEGATRON, "2 * cp_size - cp_rank - 1", "cp_size + cp_rank", "layout.balance", 0),
    (MEGATRON, "index[0].fill_(cp_rank)", "index[0].fill_(0)", "layout.bijection", 0),
    (MEGATRON, "if key != 'attention_mask'", "if key != 'position_ids'", "layout.companions", 0),
    (ENGINE, "cp_rank - 1) * slice_size", "cp_rank) * slice_size", "layout.bijection", 0),
    (ENGINE, "torch.arange(0, int(length)", "torch.arange(1, 1 + int(length)", "layout.companions", 0),
    (ENGINE, "(2 * cp_size - cp_rank - 1) * seqlens_padded", "cp_size * seqlens_padded", "layout.companions", 1),
    (ENGINE, "(2 * cp_size - cp_rank - 1) * seqlens_padded", "cp_size * seqlens_padded", "layout.conserves", 1),
    (VERL, "min(half_seqlen * (cp_rank + 1), d.shape[0])", "half_seqlen * cp_rank", "layout.bijection", 0),
    (VERL, "(j + 1) * half_seqlen] = o0", "(j + 1) * half_seqlen] = o1", "layout.roundtrip", 0),
]


@pytest.mark.parametrize(("which", "old", "new", "id", "part"), EDITS)
def test_an_adapter_hides_nothing_that_is_broken_in_the_engine(release_folder, tmp_path, which, old, new, id, part):
    case = LayoutCase(cp_size=2, batch=batch(8)) if which == MEGATRON else SOME
    assert judged(copied(release_folder, tmp_path, which), id, case, part) is None
    assert judged(copied(release_folder, tmp_path, which, old, new), id, case, part)


@pytest.mark.parametrize(
    ("which", "symbol"),
    [
        (MEGATRON, "get_batch_on_this_cp_rank"),
        (ENGINE, "pad_thd_sequences_for_cp"),
        (ENGINE, "get_cu_seqlens_on_cp_rank"),
        (VERL, "postprocess_packed_seqs"),
    ],
)
def test_a_release_without_a_function_is_told_by_its_name(release_folder, tmp_path, which, symbol):
    with pytest.raises(TargetError, match=f"{symbol} is missing"):
        copied(release_folder, tmp_path, which, f"def {symbol}(", "def gone(")


def test_a_mended_sharder_would_pass(release_folder, tmp_path):
    """The red cell of TransformerEngine is about the padding factor and nothing else."""
    start = "    if qvk_format not in"
    check = "    assert not (cu_seqlens_padded % (2 * cp_group.size)).any()\n"
    case = BadLayoutCase(cp_size=3, lengths=(1,), padding_factor=2)
    assert judged(copied(release_folder, tmp_path, ENGINE), "layout.bad-input", case)
    assert judged(copied(release_folder, tmp_path, ENGINE, start, check + start), "layout.bad-input", case) is None
