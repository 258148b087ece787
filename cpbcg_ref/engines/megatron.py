"""Megatron-core: `get_batch_on_this_cp_rank`, asked as every virtual rank; its graphs are in `megatron_dispatch`.

It slices one row of tokens, [B, S] with S a multiple of 2 x cp; sequences that are packed into the row are not its
concern. What else stands in the batch is sliced the same way.
"""

from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.lacking import GRAPHS_FOR_STEPS, NO_COUNTS, NO_DELAYER
from cpbcg_ref.engines.megatron_dispatch import DISPATCHERS, MegatronDispatch
from cpbcg_ref.engines.process_group import Group
from cpbcg_ref.engines.supplied import ints

UTILS = "megatron.core.utils"
REAL = (UTILS, "megatron.core.package_info")
LACKS = {
    "gate": "it slices every batch",
    "gather": "it has no function that puts slices together again",
    "keys": "compiled attention decides which keys a row sees",
}
LACKS |= NO_DELAYER | GRAPHS_FOR_STEPS | NO_COUNTS


class Megatron:
    """One release. package_root: the folder that contains `megatron`.

    Raises TargetError, with the symbol, if the release lacks something that this adapter needs.
    """

    name = "megatron-core"
    unavailable = LACKS
    contract = Contract(
        divides=2, max_requests=1, cached_prefixes=False, negative_lengths=False, dispatchers=DISPATCHERS
    )

    def __init__(self, package_root: Path, version: str) -> None:
        root = Path(package_root).absolute()
        self.version, self.roots, self.group = version, [str(root / "megatron")], Group()
        tree = Hermetic(root, "megatron", REAL)
        size, rank = (lambda: self.group.size), (lambda: self.group.rank)
        ranks = {"get_context_parallel_world_size": size, "get_context_parallel_rank": rank}
        tree.provide("megatron.core.parallel_state", **ranks)
        self.slice = tree.symbol(UTILS, "get_batch_on_this_cp_rank")
        self.start_dispatcher = MegatronDispatch(root).start_dispatcher

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        return self._sliced("tokens", {"tokens": payload}, **group)

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        return self._sliced("position_ids", {"position_ids": positions}, **group)

    def shard_lengths(self, batch: Batch, payload: list[int], cumulative: list[int], **group: Any) -> list[list[int]]:
        return self._sliced("cu_seqlens", {"tokens": payload, "cu_seqlens": cumulative}, **group)

    def _sliced(self, wanted: str, batch: dict[str, list[int]], *, cp_size: int, strategy: str) -> list[list[int]]:
        """What every rank gets of one entry of a batch of one row."""
        answers = []
        for _ in self.group.each_rank(cp_size):
            mine = self.slice({key: ints(values).view(1, -1) for key, values in batch.items()})
            answers.append(mine[wanted].flatten().tolist())
        return answers
