"""verl packs sequences for Megatron in two ways, asked as every virtual rank of a CP group: `*_packed_seqs` takes a
rectangle and a mask, `*_thd_engine` takes a nested tensor."""

import logging
from dataclasses import replace
from inspect import signature
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.lacking import NO_COUNTS, NO_DELAYER, NO_GRAPHS
from cpbcg_ref.engines.process_group import Group
from cpbcg_ref.engines.supplied import Bag, always, ints

UTIL = "verl.models.mcore.util"
NOT_THERE = {"gate": "it packs every batch", "keys": "compiled attention decides which keys a row sees"}
NOT_THERE |= NO_DELAYER | NO_GRAPHS | NO_COUNTS
PACKS = Contract(blocks="ceil", min_length=0, cached_prefixes=False, negative_lengths=False)


class PackedSeqParams(SimpleNamespace):
    """What Megatron's record of a packed batch is to verl: fields by name."""


def loaded(root: Path, group: Group) -> Hermetic:
    """The release, with what its packing asks of Megatron and of logging."""
    tree = Hermetic(root, "verl", (UTIL,))
    tree.provide("megatron.core.packed_seq_params", PackedSeqParams=PackedSeqParams)
    tree.provide(
        "megatron.core.parallel_state",
        get_tensor_model_parallel_world_size=always(1),
        get_context_parallel_world_size=lambda: group.size,
        get_context_parallel_rank=lambda: group.rank,
        get_context_parallel_group=lambda: group,
    )
    tree.provide(UTIL, torch=group.torch(), logger=Bag(warning_once=always(None)))
    return tree


class Verl:
    """`preprocess_packed_seqs` and `postprocess_packed_seqs`. package_root: the folder that contains `verl`.

    Raises TargetError, with the symbol, if the release lacks something that this adapter needs.
    """

    name = "verl"
    unavailable = NOT_THERE
    contract = PACKS

    def __init__(self, package_root: Path, version: str) -> None:
        root = Path(package_root).absolute()
        self.version, self.roots, self.group = version, [str(root / "verl")], Group()
        tree = loaded(root, self.group)
        self.pack, self.unpack = (tree.symbol(UTIL, f"{when}process_packed_seqs") for when in ("pre", "post"))

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        return [rows[0].tolist() for rows, _ in self._packed(batch, payload, **group)]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        """As its callers pack labels and masks: by the function that packs tokens."""
        return self.shard(batch, positions, **group)

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        _, mask = rectangle(batch, [])
        params = [params for _, params in self._packed(batch, [0] * batch.num_tokens, **group)]
        return [
            self.unpack(own, params[rank], mask, *mask.shape)[mask].tolist()
            for rank, own in self.group.handing_in([ints(local).view(1, -1) for local in rows])
        ]

    def _packed(self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str) -> list[Any]:
        """Of every rank (rows, parameters of the packed batch)."""
        given = rectangle(batch, payload)
        return [self.pack(*given) for _ in self.group.each_rank(cp_size)]


class ThdEngine:
    """`preprocess_thd_engine` and `postprocess_thd_engine`, called `*_thd_no_padding` at first.

    Raises TargetError, with the symbol, if the release lacks something that this adapter needs.
    """

    name = "verl-thd-engine"

    def __init__(self, package_root: Path, version: str) -> None:
        root = Path(package_root).absolute()
        self.version, self.roots, self.group = version, [str(root / "verl")], Group()
        tree = loaded(root, self.group)
        kind = "thd_no_padding" if hasattr(tree.load(UTIL), "preprocess_thd_no_padding") else "thd_engine"
        self.pack, self.unpack = (tree.symbol(UTIL, f"{when}process_{kind}") for when in ("pre", "post"))
        chooses = "pad_to_length_bucket" in signature(self.pack).parameters
        self.contract = replace(PACKS, padding_factor=chooses)
        numbers = {} if kind == "thd_engine" else {"positions": "this release does not number what it packs"}
        self.unavailable = NOT_THERE | numbers
        logging.getLogger("torch.fx._symbolic_trace").setLevel("ERROR")  # it would warn of torch itself

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        return [rows[0].tolist() for rows, *_ in self._packed(batch, payload, **group)]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        """The engine numbers the positions itself: sequences start at 0 there."""
        return [numbers[0].tolist() for *_, numbers in self._packed(batch, positions, **group)]

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        """The first releases gather into floats, whatever they are handed."""
        given = nested(batch, [0] * batch.num_tokens)
        params = [params for _, params, *_ in self._packed(batch, [0] * batch.num_tokens, **group)]
        return [
            self.unpack(own, params[rank], given, len(batch.lengths)).values().long().tolist()
            for rank, own in self.group.handing_in([ints(local).view(1, -1) for local in rows])
        ]

    def _packed(
        self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str, padding_factor: int = 0
    ) -> list[Any]:
        """Of every rank (rows, parameters of the packed batch, positions); it pads the batch to such a multiple."""
        given, chosen = nested(batch, payload), {"pad_to_length_bucket": padding_factor} if padding_factor else {}
        return [self.pack(given, **chosen) for _ in self.group.each_rank(cp_size)]


def rectangle(batch: Batch, payload: list[int]) -> tuple[Any, Any]:
    """One row per sequence, and where its tokens stand: at the start, as long as it is."""
    width = max(batch.lengths, default=0)
    mask = ints(range(width)) < ints(batch.lengths).view(-1, 1)
    tokens = ints([0]) * mask
    if payload:
        tokens[mask] = ints(payload)
    return tokens, mask


def nested(batch: Batch, payload: list[int]) -> Any:
    """The sequences one behind the other, and where each of them begins and ends."""
    import torch

    return torch.nested.nested_tensor_from_jagged(ints(payload), ints(accumulate(batch.lengths, initial=0)))
