"""SGLang's context-parallel layout, capacity and selection: the release's own functions, asked as every virtual rank.

The code under test runs as it was published. Only the collective between the ranks is a stand-in.
"""

import inspect
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.sglang_process import CP, Process

BACKENDS = ("trtllm_mha", "dsv4", "dsa")  # attention backends that some release captures CP graphs for


class Layout:
    """The methods of the capability `layout`, see `contract`. `group` is cp_size, strategy and maybe captured_rows."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._asked: Any = None
        self._forwards: dict[int, Any] = {}

    def is_cp_active(self, batch: Batch, *, cp_size: int, strategy: str, cp_rank: int) -> bool:
        self.process.enter(cp_size, strategy, cp_rank)
        return bool(self.process.is_cp_active(self.process.batch(batch)))

    def logical_rows(self, batch: Batch, **group: Any) -> list[int]:
        every = self._on_every_rank(lambda strategy, forward: forward.attn_cp_metadata, batch, **group)
        return [int(metadata.per_rank_logical_token[rank]) for rank, metadata in enumerate(every)]

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        """One number per token, sharded as hidden states."""
        import torch

        hidden = torch.tensor(payload, dtype=torch.int64).view(-1, 1)
        rows = self._on_every_rank(lambda own, forward: own.shard_hidden_states(hidden, forward), batch, **group)
        return [local.flatten().tolist() for local in rows]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        import torch

        given = torch.tensor(positions, dtype=torch.int64)
        rows = self._on_every_rank(lambda own, forward: own.shard_position_ids(given, forward), batch, **group)
        return [local.tolist() for local in rows]

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        """Every rank's gather runs twice: once to hand in its rows, once to receive those of all."""
        import torch

        local = [torch.tensor(own, dtype=torch.int64).view(-1, 1) for own in rows]
        handed_in: list[Any] = []

        def gather_own(strategy: Any, forward: Any) -> Any:
            return strategy.gather_hidden_states(local[strategy.cp_rank], forward)

        self.process.group = lambda output, own: handed_in.append(own.clone())
        self._on_every_rank(gather_own, batch, **group)
        whole = torch.cat(handed_in)
        self.process.group = lambda output, own: output.copy_(whole)
        return [output.flatten().tolist() for output in self._on_every_rank(gather_own, batch, **group)]

    def kv_segments(self, batch: Batch, **group: Any) -> list[list[tuple[int, int]]]:
        """Zigzag: the per-block lengths that attention reads. Interleave has none: its attention backend shards the
        causal key count of every token with the strategy's `shard_local_tokens`, so that is done here."""
        read = zigzag_segments if group["strategy"] == "zigzag" else token_segments
        return self._on_every_rank(lambda own, forward: read(own, forward, batch), batch, **group)

    def _on_every_rank(self, ask: Any, batch: Batch, *, cp_size: int, **group: Any) -> list[Any]:
        """`ask(strategy, forward)` as every rank; `forward` has the metadata that the release builds for that rank."""
        return [ask(*self._prepared(batch, cp_rank, cp_size, **group)) for cp_rank in range(cp_size)]

    def _prepared(
        self, batch: Batch, cp_rank: int, cp_size: int, strategy: str, captured_rows: int | None = None
    ) -> tuple[Any, Any]:
        own, asked = self.process.enter(cp_size, strategy, cp_rank), (batch, cp_size, strategy, captured_rows)
        if asked != self._asked:
            self._asked, self._forwards = asked, {}
        if cp_rank not in self._forwards:  # one forward builds its metadata once
            self._forwards[cp_rank] = self._prepare(batch, cp_size, captured_rows)
        return own, self._forwards[cp_rank]

    def _prepare(self, batch: Batch, cp_size: int, captured_rows: int | None) -> Any:
        forward = self.process.batch(batch)
        self.process.cp.prepare_cp_forward(forward)
        if captured_rows is not None:  # what a graph does to the metadata before it shards a live batch
            forward.attn_cp_metadata.per_rank_actual_token = [captured_rows] * cp_size
            forward.attn_cp_metadata.max_rank_len = [captured_rows] * cp_size
        return forward


def zigzag_segments(strategy: Any, forward: Any, batch: Batch) -> list[tuple[int, int]]:
    metadata = forward.attn_cp_metadata
    early = zip(metadata.actual_seq_q_prev_list, metadata.kv_len_prev_list, strict=True)
    late = zip(metadata.actual_seq_q_next_list, metadata.kv_len_next_list, strict=True)
    return [(int(rows), int(keys)) for rows, keys in (*early, *late)]


def token_segments(strategy: Any, forward: Any, batch: Batch) -> list[tuple[int, int]]:
    import torch

    spans = [range(p + 1, p + length + 1) for p, length in zip(batch.prefixes, batch.lengths, strict=True)]
    keys = torch.tensor([key for span in spans for key in span], dtype=torch.int64)
    return [(1, key) for key in strategy.shard_local_tokens(keys).tolist()]


class Capacity:
    """The methods of the capabilities `capacity` and `selection`: the release's `PrefillCPBCGInput`."""

    def __init__(self, process: Process) -> None:
        self.process, tree = process, process.tree
        name = CP + ("bcg.bcg" if tree.has(CP + "bcg.bcg") else "bcg")
        self.module: Any = tree.load(CP + "bcg") if tree.has(CP + "bcg") else None
        self.input: Any = tree.symbol(name, "PrefillCPBCGInput") if self.module else None

    def graph_backend(self, strategy: str) -> str | None:
        """The attention backend under which this release captures graphs for `strategy`, by asking the release."""
        if self.module is None:
            return None
        kept = self.process.args.backend
        try:
            self.process.enter(4, strategy, 0)
            return next((name for name in BACKENDS if self._supports(name)), None)
        finally:
            self.process.args.backend = kept

    def _supports(self, backend: str) -> bool:
        self.process.args.backend = backend
        return bool(self.module.supports_prefill_cp_bcg(self.process.args))

    def required_local_tokens(
        self, lengths: list[int] | None, *, cp_size: int, strategy: str, cp_rank: int
    ) -> int | None:
        if self.process.enter(cp_size, strategy, cp_rank) is None:
            return None  # no CP configured: a server without CP has no such object to ask
        answer = object.__new__(self._input_type()).required_local_tokens(lengths)
        return None if answer is None else int(answer)

    def _input_type(self) -> Any:
        if not hasattr(self.module, "get_cp_bcg_input_type"):
            return self.input
        return self.module.get_cp_bcg_input_type(self.process.base.get_cp_strategy_kind())

    def select_replay_bucket(
        self, *, bucket_local_tokens: dict[int, int], min_replay_bucket: int = 0, **asked: Any
    ) -> int | None:
        """`min_replay_bucket` reaches the release only if its selector has such a parameter."""
        chooser = object.__new__(self.input)
        chooser.bucket_local_tokens = bucket_local_tokens
        if "min_replay_bucket" in inspect.signature(chooser.select_replay_bucket).parameters:
            asked["min_replay_bucket"] = min_replay_bucket
        answer = chooser.select_replay_bucket(**asked)
        return None if answer is None else int(answer)
