"""SGLang's context-parallel layout, capacity and selection: the release's own functions, asked as every virtual rank.

The code under test runs as it was published. Only the collective between the ranks is a stand-in.
"""

from collections.abc import Callable
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.sglang_process import CP, Process
from cpbcg_ref.engines.supplied import ints

Ask = Callable[[Any, Any], Any]
BACKENDS = ("trtllm_mha", "dsv4", "dsa")  # attention backends that some release captures CP graphs for


class Layout:
    """The methods of the capability `layout`, see `contract`. `group` is cp_size, strategy and maybe captured_rows."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def is_cp_active(self, batch: Batch, *, cp_size: int, strategy: str, cp_rank: int) -> bool:
        self.process.enter(cp_size, strategy, cp_rank)
        return bool(self.process.is_cp_active(self.process.batch(batch)))

    def logical_rows(self, batch: Batch, **group: Any) -> list[int]:
        def owned(own: Any, forward: Any) -> int:
            return int(forward.attn_cp_metadata.per_rank_logical_token[own.cp_rank])

        return self._on_every_rank(owned, batch, **group)

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        """One number per token, sharded as hidden states."""
        hidden = ints(payload).view(-1, 1)
        rows = self._on_every_rank(lambda own, forward: own.shard_hidden_states(hidden, forward), batch, **group)
        return [local.flatten().tolist() for local in rows]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        given = ints(positions)
        rows = self._on_every_rank(lambda own, forward: own.shard_position_ids(given, forward), batch, **group)
        return [local.tolist() for local in rows]

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        """Every rank's gather runs twice: once to hand in its rows, once to receive those of all."""
        import torch

        def gather_own(own: Any, forward: Any) -> Any:
            return own.gather_hidden_states(ints(rows[own.cp_rank]).view(-1, 1), forward)

        handed_in: list[Any] = []
        self.process.group = lambda output, local: handed_in.append(local.clone())
        self._on_every_rank(gather_own, batch, **group)
        self.process.group = lambda output, local: output.copy_(torch.cat(handed_in))
        return [output.flatten().tolist() for output in self._on_every_rank(gather_own, batch, **group)]

    def kv_segments(self, batch: Batch, **group: Any) -> list[list[tuple[int, int]]]:
        """Zigzag: the per-block lengths that attention reads. Interleave has none: its attention backend shards the
        causal key count of every token with the strategy's `shard_local_tokens`, so that is done here."""
        spans = [range(p + 1, p + length + 1) for p, length in zip(batch.prefixes, batch.lengths, strict=True)]

        def of_tokens(own: Any, forward: Any) -> list[tuple[int, int]]:
            return [(1, keys) for keys in own.shard_local_tokens(ints(key for span in spans for key in span)).tolist()]

        return self._on_every_rank(of_blocks if group["strategy"] == "zigzag" else of_tokens, batch, **group)

    def _on_every_rank(self, ask: Ask, batch: Batch, *, captured_rows: int | None = None, **group: Any) -> list[Any]:
        """`ask(own, forward)` as every rank: its strategy object, and a batch with the metadata made for that rank."""
        answers, cp_size = [], group["cp_size"]
        for cp_rank in range(cp_size):
            own, forward = self.process.enter(**group, cp_rank=cp_rank), self.process.batch(batch)
            self.process.cp.prepare_cp_forward(forward)
            if captured_rows is not None:  # what a graph does to the metadata before it shards a live batch
                forward.attn_cp_metadata.per_rank_actual_token = [captured_rows] * cp_size
                forward.attn_cp_metadata.max_rank_len = [captured_rows] * cp_size
            answers.append(ask(own, forward))
        return answers


def of_blocks(own: Any, forward: Any) -> list[tuple[int, int]]:
    metadata = forward.attn_cp_metadata
    early = zip(metadata.actual_seq_q_prev_list, metadata.kv_len_prev_list, strict=True)
    late = zip(metadata.actual_seq_q_next_list, metadata.kv_len_next_list, strict=True)
    return [(int(rows), int(keys)) for rows, keys in (*early, *late)]


class Capacity:
    """The methods of the capabilities `capacity` and `selection`: the release's `PrefillCPBCGInput`."""

    def __init__(self, process: Process) -> None:
        self.process, tree = process, process.tree
        name = CP + ("bcg.bcg" if tree.has(CP + "bcg.bcg") else "bcg")
        self.module: Any = tree.load(CP + "bcg") if tree.has(CP + "bcg") else None
        self.input: Any = tree.symbol(name, "PrefillCPBCGInput") if self.module else None

    def graph_backend(self, strategy: str) -> str:
        """Configure the attention backend under which this release has graphs for `strategy`; "" if under none."""
        self.process.enter(4, strategy, 0)
        for backend in (*BACKENDS, ""):
            self.process.args.backend = backend
            if self.module and self.module.supports_prefill_cp_bcg(self.process.args):
                return backend
        return ""

    def required_local_tokens(self, lengths: list[int] | None, **rank: Any) -> int | None:
        if self.process.enter(**rank) is None:
            return None  # no CP configured: a server without CP has no such object to ask
        kind = self.input
        if hasattr(self.module, "get_cp_bcg_input_type"):
            kind = self.module.get_cp_bcg_input_type(self.process.base.get_cp_strategy_kind())
        rows: int | None = object.__new__(kind).required_local_tokens(lengths)
        return rows

    def select_replay_bucket(self, *, bucket_local_tokens: dict[int, int], **asked: Any) -> int | None:
        del asked["min_replay_bucket"]  # no release has one; the contract says so
        chooser = object.__new__(self.input)
        chooser.bucket_local_tokens = bucket_local_tokens
        bucket: int | None = chooser.select_replay_bucket(**asked)
        return bucket
