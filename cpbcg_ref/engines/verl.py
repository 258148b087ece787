"""verl: `preprocess_packed_seqs` and `postprocess_packed_seqs`, asked as every virtual rank of a Megatron CP group."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.process_group import Group
from cpbcg_ref.engines.sglang_process import always, ints

UTIL = "verl.models.mcore.util"


class PackedSeqParams(SimpleNamespace):
    """What Megatron's record of a packed batch is to verl: fields by name."""


class Verl:
    """One release. package_root: the folder that contains `verl`.

    Raises TargetError, with the symbol, if the release lacks something that this adapter needs.
    """

    name = "verl"
    unavailable = {  # noqa: RUF012
        "gate": "it packs every batch",
        "keys": "compiled attention decides which keys a row sees",
        "captured-rows": "it packs for training: there are no captured graphs",
    }
    contract = Contract(blocks="ceil", min_length=0, cached_prefixes=False, negative_lengths=False)

    def __init__(self, package_root: Path, version: str) -> None:
        root = Path(package_root).absolute()
        self.version, self.roots, self.group = version, [str(root / "verl")], Group()
        tree = Hermetic(root, "verl", (UTIL,))
        tree.provide("megatron.core.packed_seq_params", PackedSeqParams=PackedSeqParams)
        tree.provide("megatron.core.parallel_state", **self._parallel_state())
        self.pack, self.unpack = (tree.symbol(UTIL, f"{when}process_packed_seqs") for when in ("pre", "post"))
        tree.provide(UTIL, torch=self.group.torch())

    def _parallel_state(self) -> dict[str, Any]:
        return {
            "get_tensor_model_parallel_world_size": always(1),
            "get_context_parallel_world_size": lambda: self.group.size,
            "get_context_parallel_rank": lambda: self.group.rank,
            "get_context_parallel_group": lambda: self.group,
        }

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        return [rows[0].tolist() for rows, _ in self._packed(batch, payload, **group)]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        """As its callers pack labels and masks: by the function that packs tokens."""
        return self.shard(batch, positions, **group)

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        """Every rank hands in its rows and receives those of all."""
        params = [params for _, params in self._packed(batch, [0] * batch.num_tokens, **group)]
        _, mask = rectangle(batch, [])
        self.group.handed_in = [ints(local).view(1, -1) for local in rows]
        answers = []
        for cp_rank, own in enumerate(self.group.handed_in):
            self.group.enter(cp_size=group["cp_size"], cp_rank=cp_rank)
            answers.append(self.unpack(own, params[cp_rank], mask, *mask.shape)[mask].tolist())
        return answers

    def _packed(self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str) -> list[Any]:
        """Of every rank (rows, parameters of the packed batch)."""
        given, answers = rectangle(batch, payload), []
        for cp_rank in range(cp_size):
            self.group.enter(cp_size=cp_size, cp_rank=cp_rank)
            answers.append(self.pack(*given))
        return answers


def rectangle(batch: Batch, payload: list[int]) -> tuple[Any, Any]:
    """One row per sequence, and where its tokens stand: at the start, as long as it is."""
    width = max(batch.lengths, default=0)
    mask = ints(range(width)) < ints(batch.lengths).view(-1, 1)
    tokens = ints([0]) * mask
    if payload:
        tokens[mask] = ints(payload)
    return tokens, mask
