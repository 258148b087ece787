"""SGLang's context-parallel layout, capacity and selection: the release's own functions, asked as every virtual rank.

The code under test runs as it was published. What a server process would know (which rank this is, how large the group
is, which flags it was started with) is in `Process`; the collective between the ranks is its only other stand-in.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.hermetic import Hermetic

SUPPORTED = "0.5.16 to 0.5.23"
SRT = "sglang.srt."
LEAVES = tuple(
    SRT + name
    for name in (
        *(f"layers.cp.{name}" for name in ("base", "zigzag", "interleave", "padding", "utils")),
        *(f"layers.cp.{name}" for name in ("bcg", "bcg.bcg", "bcg.zigzag_bcg", "bcg.interleave_bcg")),
        *("layers.utils.cp_utils", "layers.attention.dsa.utils", "utils", "utils.common"),
        *(f"model_executor.runner.{name}" for name in ("base_runner", "base_cuda_graph_runner", "shape_key")),
        *("model_executor.runner.prefill_cuda_graph_runner", "model_executor.runner_utils.buffers"),
        *(f"model_executor.{name}" for name in ("forward_batch_info", "input_buffers", "model_runner")),
        *("model_executor.cuda_graph_buffer_registry", "model_executor.cuda_graph_config"),
    )
)
GRAPH_MODEL = "Glm5NextForConditionalGeneration"  # the one architecture with interleave graphs where that is checked
BACKENDS = ("trtllm_mha", "dsv4", "dsa")  # attention backends that some release captures CP graphs for


class Bag:
    """Process state by name. A name that is missing here is the adapter's fault, never the engine's answer."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the engine asks its process for {name!r}, which this adapter does not supply")


class Process:
    """One release and the state that its code looks up: `enter` makes it the process of one CP rank."""

    def __init__(self, package_root: Path) -> None:
        self.group: Callable[[Any, Any], None] = lambda output, local: None  # the all-gather of the CP group
        collective = Bag(all_gather_into_tensor=lambda output, local: self.group(output, local), barrier=lambda: None)
        self.parallel: Any = Bag(
            attn_cp_rank=0, attn_cp_size=1, attn_cp_group=collective, tp_group=collective, tp_rank=0, tp_size=1,
            attn_tp_size=1, attn_tp_rank=0, dp_size=1, num_dp_ranks=1, pp_size=1, enable_dp_attention=False,
            attn_dp_enabled=False, moe_dense_tp_size=None, disable_attn_tp_gather=False,
            enable_cp_tp_group_sharing=False, enable_prefill_cp=False, cp_strategy=None,
            enable_prefill_context_parallel=False, enable_dsa_prefill_context_parallel=False,
        )  # fmt: skip
        args: Any = Bag(device="cpu", pp_size=1, dp_size=1, ep_size=1, enable_lora=False, backend="")
        args.get_model_config = lambda: Bag(hf_config=Bag(architectures=[GRAPH_MODEL]))
        args._resolved = lambda: args
        args._resolved_attention_backends = lambda: (args.backend, args.backend)
        self.args = args
        self.tree = Hermetic(package_root, "sglang", LEAVES, supported=SUPPORTED)
        self._provide(collective)
        self.base = self.tree.load(SRT + "layers.cp.base")
        self.cp = self.tree.load(SRT + "layers.cp.utils")
        self.batches = self.tree.load(SRT + "model_executor.forward_batch_info")
        self.fields = frozenset(inspect.signature(self.batches.ForwardBatch).parameters)
        names = [name for name in ("is_cp_active", "is_cp_v2_active") if hasattr(self.cp, name)]
        self.is_cp_active = self.tree.symbol(SRT + "layers.cp.utils", names[0] if names else "is_cp_active")

    def _provide(self, collective: Bag) -> None:
        model = self.args.get_model_config
        state = {"get_parallel": lambda: self.parallel, "get_server_args": lambda: self.args}
        self.tree.provide(SRT + "runtime_context", get_device=lambda: self.args, process_model_config=model, **state)
        on = Bag(get=lambda: True)  # the CP-v2 path; later releases have no other
        self.tree.provide(SRT + "environ", envs=Bag(SGLANG_ENABLE_CP_V2=on))
        self.tree.provide(
            SRT + "arg_groups.overrides",
            resolved_view=lambda args: args,
            resolving_view=lambda args: args,
            attention_backends_of=lambda args: (args.backend, args.backend),
            model_config_of=lambda args: model(),
        )
        gather = collective.all_gather_into_tensor
        self.tree.provide(SRT + "layers.dp_attention", attn_cp_all_gather_into_tensor=gather)

    def enter(self, cp_size: int, strategy: str, cp_rank: int) -> Any:
        """Become rank `cp_rank` of a group that was started with `strategy`; the release's strategy object or None."""
        if (cp_size, strategy) != (self.parallel.attn_cp_size, self.parallel.cp_strategy):
            self.configure(cp_size, strategy)
        self.parallel.attn_cp_rank = self.parallel.tp_rank = cp_rank
        return self.base.get_cp_strategy()

    def configure(self, cp_size: int, strategy: str) -> None:
        """What the public flags `--attn-cp-size N --cp-strategy S` resolve to; no CP flag at all for size 1."""
        mode = {"zigzag": "in-seq-split"}.get(strategy, "round-robin-split")
        flags = {"enable_prefill_cp": cp_size > 1, "attn_cp_size": cp_size, "tp_size": cp_size, "cp_strategy": strategy}
        flags |= {"prefill_cp_mode": mode, "dsa_prefill_cp_mode": mode, "enable_prefill_context_parallel": cp_size > 1}
        vars(self.parallel).update(flags)
        vars(self.args).update(flags)
        self.base._STRATEGY = None  # the release makes it anew on the next look

    def batch(self, batch: Batch, num_tokens: int) -> Any:
        """The release's ForwardBatch of an extend pass; the ids and positions of its tokens are left to the caller."""
        import torch

        seq_lens = torch.tensor([p + length for p, length in zip(batch.prefixes, batch.lengths, strict=True)])
        values = {
            "forward_mode": self.batches.ForwardMode.EXTEND,
            "batch_size": len(batch.lengths),
            "input_ids": torch.zeros(num_tokens, dtype=torch.int64),
            "req_pool_indices": torch.arange(len(batch.lengths)),
            "seq_lens": seq_lens,
            "seq_lens_cpu": seq_lens,
            "orig_seq_lens": seq_lens,
            "seq_lens_sum": sum(batch.prefixes) + sum(batch.lengths),
            "out_cache_loc": torch.arange(num_tokens),
            "extend_num_tokens": num_tokens,
            "extend_seq_lens": torch.tensor(batch.lengths, dtype=torch.int64),
            "extend_prefix_lens": torch.tensor(batch.prefixes, dtype=torch.int64),
            "extend_prefix_lens_cpu": list(batch.prefixes),
            "extend_seq_lens_cpu": list(batch.lengths) if batch.lengths_known else None,
        }
        return self.batches.ForwardBatch(**{name: value for name, value in values.items() if name in self.fields})


class Layout:
    """The methods of the capability `layout`, see `contract`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._asked: Any = None
        self._forwards: dict[int, Any] = {}

    def is_cp_active(self, batch: Batch, *, cp_size: int, strategy: str, cp_rank: int) -> bool:
        self.process.enter(cp_size, strategy, cp_rank)
        return bool(self.process.is_cp_active(self.process.batch(batch, max(batch.num_tokens, 0))))

    def prepared(
        self, batch: Batch, cp_size: int, strategy: str, cp_rank: int, captured_rows: int | None = None
    ) -> tuple[Any, Any]:
        """The strategy and the batch with the metadata that the release builds for this rank, once per forward."""
        chosen, asked = self.process.enter(cp_size, strategy, cp_rank), (batch, cp_size, strategy, captured_rows)
        if asked != self._asked:
            self._asked, self._forwards = asked, {}
        if cp_rank not in self._forwards:
            self._forwards[cp_rank] = self._prepare(batch, cp_size, captured_rows)
        return chosen, self._forwards[cp_rank]

    def _prepare(self, batch: Batch, cp_size: int, captured_rows: int | None) -> Any:
        forward = self.process.batch(batch, max(batch.num_tokens, 0))
        self.process.cp.prepare_cp_forward(forward)
        if captured_rows is not None:  # what a graph does to the metadata before it shards a live batch
            forward.attn_cp_metadata.per_rank_actual_token = [captured_rows] * cp_size
            forward.attn_cp_metadata.max_rank_len = [captured_rows] * cp_size
        return forward

    def logical_rows(self, batch: Batch, *, cp_size: int, strategy: str) -> list[int]:
        every = [self.prepared(batch, cp_size, strategy, rank)[1].attn_cp_metadata for rank in range(cp_size)]
        return [int(metadata.per_rank_logical_token[rank]) for rank, metadata in enumerate(every)]

    def shard(
        self, batch: Batch, payload: list[int], *, cp_size: int, strategy: str, captured_rows: int | None = None
    ) -> list[list[int]]:
        """Rows of one int, sharded as hidden states."""
        import torch

        hidden, rows = torch.tensor(payload, dtype=torch.int64).view(-1, 1), []
        for rank in range(cp_size):
            chosen, forward = self.prepared(batch, cp_size, strategy, rank, captured_rows)
            rows.append(chosen.shard_hidden_states(hidden, forward).flatten().tolist())
        return rows

    def shard_positions(
        self, batch: Batch, positions: list[int], *, cp_size: int, strategy: str, captured_rows: int | None = None
    ) -> list[list[int]]:
        import torch

        given, rows = torch.tensor(positions, dtype=torch.int64), []
        for rank in range(cp_size):
            chosen, forward = self.prepared(batch, cp_size, strategy, rank, captured_rows)
            rows.append(chosen.shard_position_ids(given, forward).tolist())
        return rows

    def gather(
        self,
        batch: Batch,
        rows: list[list[int]],
        *,
        cp_size: int,
        strategy: str,
        captured_rows: int | None = None,
    ) -> list[list[int]]:
        """Every rank's gather runs twice: once to hand in its rows, once to receive those of all."""
        import torch

        def every_rank(collective: Any) -> list[list[int]]:
            self.process.group, restored = collective, []
            for rank in range(cp_size):
                chosen, forward = self.prepared(batch, cp_size, strategy, rank, captured_rows)
                local = torch.tensor(rows[rank], dtype=torch.int64).view(-1, 1)
                restored.append(chosen.gather_hidden_states(local, forward).flatten().tolist())
            return restored

        handed_in: list[Any] = []
        every_rank(lambda output, local: handed_in.append(local.clone()))
        whole = torch.cat(handed_in)
        return every_rank(lambda output, local: output.copy_(whole))

    def kv_segments(self, batch: Batch, *, cp_size: int, strategy: str) -> list[list[tuple[int, int]]]:
        """Zigzag: the per-block lengths that attention reads. Interleave has none: its attention backend shards the
        causal key count of every token with the strategy's `shard_local_tokens`, so that is done here."""
        read = self._zigzag_segments if strategy == "zigzag" else self._token_segments
        return [read(batch, cp_size, rank) for rank in range(cp_size)]

    def _zigzag_segments(self, batch: Batch, cp_size: int, cp_rank: int) -> list[tuple[int, int]]:
        metadata = self.prepared(batch, cp_size, "zigzag", cp_rank)[1].attn_cp_metadata
        early = zip(metadata.actual_seq_q_prev_list, metadata.kv_len_prev_list, strict=True)
        late = zip(metadata.actual_seq_q_next_list, metadata.kv_len_next_list, strict=True)
        return [(int(rows), int(keys)) for rows, keys in (*early, *late)]

    def _token_segments(self, batch: Batch, cp_size: int, cp_rank: int) -> list[tuple[int, int]]:
        import torch

        chosen, _ = self.prepared(batch, cp_size, "interleave", cp_rank)
        spans = [range(p + 1, p + length + 1) for p, length in zip(batch.prefixes, batch.lengths, strict=True)]
        keys = torch.tensor([key for span in spans for key in span], dtype=torch.int64)
        return [(1, key) for key in chosen.shard_local_tokens(keys).tolist()]


class Capacity:
    """The methods of the capabilities `capacity` and `selection`: the release's `PrefillCPBCGInput`."""

    def __init__(self, process: Process) -> None:
        self.process, tree = process, process.tree
        name = SRT + ("layers.cp.bcg.bcg" if tree.has(SRT + "layers.cp.bcg.bcg") else "layers.cp.bcg")
        self.module: Any = tree.load(SRT + "layers.cp.bcg") if tree.has(SRT + "layers.cp.bcg") else None
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
