"""TransformerEngine: packed sequences are padded one by one, sliced, and told of by cumulative lengths.

From the wheel's Python files, which slice tensors on the CPU; on a GPU compiled code does that, and it gathers packed
sequences: neither is asked.
"""

from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.lacking import NO_DELAYER, NO_GRAPHS
from cpbcg_ref.engines.process_group import Group
from cpbcg_ref.engines.supplied import ints

CP = "transformer_engine.pytorch.attention.dot_product_attention.context_parallel"
CONSTANTS = "transformer_engine.pytorch.constants"
FUNCTIONS = ("pad_thd_sequences_for_cp", "generate_positional_ids_for_cp", "get_batch_on_this_cp_rank")
# Its module wants the numbers of the compiled extension. Members are only compared for identity.
Balancing = Enum("Balancing", "DUAL_CHUNK_SWAP NO_LOAD_BALANCE")
LACKS = {
    "gate": "it slices every batch",
    "gather": "putting the slices of packed sequences together again is compiled code",
    "keys": "compiled attention decides which keys a row sees",
}
LACKS |= NO_DELAYER | NO_GRAPHS


class TransformerEngine:
    """One release. package_root: the folder that contains `transformer_engine`.

    Raises TargetError, with the symbol, if the release lacks something that this adapter needs.
    """

    name = "transformer-engine"
    unavailable = LACKS
    contract = Contract(blocks="ceil", min_length=0, cached_prefixes=False, negative_lengths=False, padding_factor=True)

    def __init__(self, package_root: Path, version: str) -> None:
        root = Path(package_root).absolute()
        self.version, self.roots, self.group = version, [str(root / "transformer_engine")], Group()
        tree = Hermetic(root, "transformer_engine", (CP,))
        tree.provide(CONSTANTS, CPLoadBalancingStrategy=Balancing)
        self.pad, self.number, self.slice = (tree.symbol(CP, name) for name in FUNCTIONS)
        self.lengths_on_rank = tree.symbol(CP, "get_cu_seqlens_on_cp_rank")
        tree.provide(CP, torch=self.group.torch())

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        return [tokens for tokens, _ in self._sliced(batch, payload, **group)]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        """The engine numbers the positions itself: sequences start at 0 there."""
        return [own for _, own in self._sliced(batch, positions, **group)]

    def logical_rows(self, batch: Batch, **group: Any) -> list[int]:
        return [own[-1] for own in self.shard_lengths(batch, [], [*accumulate(batch.lengths, initial=0)], **group)]

    def shard_lengths(self, batch: Batch, payload: list[int], cumulative: list[int], **group: Any) -> list[list[int]]:
        """As attention asks for them, both blocks of every sequence."""
        cp_size, given = group["cp_size"], ints(cumulative)
        tokens = ints(range(cumulative[-1]))
        *_, padded = self.pad(tokens, tokens, given, 2 * cp_size)
        own = [self.lengths_on_rank(given, padded // cp_size, cp_size, rank, True, True) for rank in range(cp_size)]
        return [lengths.tolist() for lengths in own]

    def _sliced(
        self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str, padding_factor: int = 0
    ) -> list[tuple[list[int], list[int]]]:
        """Tokens and positions of every rank. The labels are the tokens again."""
        factor, tokens = padding_factor or 2 * cp_size, ints(payload)
        cumulative = ints(accumulate(batch.lengths, initial=0))
        ids, labels, padded = self.pad(tokens, tokens, cumulative, factor)
        positions, answers = self.number(cumulative, factor), []
        for _ in self.group.each_rank(cp_size):
            mine, _, own = self.slice(padded, ids, labels, positions, cp_group=self.group)
            answers.append((mine.tolist(), own.tolist()))
        return answers
