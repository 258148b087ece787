"""What SGLang's code finds around it when it runs: one release, and the process state of one virtual rank at a time."""

import inspect
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.hermetic import Hermetic

SUPPORTED = "0.5.16 to 0.5.23"
SRT = "sglang.srt."
CP = SRT + "layers.cp."
EXECUTOR = SRT + "model_executor."
RUNNER = EXECUTOR + "runner.prefill_cuda_graph_runner"
LEAVES = (
    *(CP + name for name in ("base", "zigzag", "interleave", "padding", "utils")),
    *(CP + name for name in ("bcg", "bcg.bcg", "bcg.zigzag_bcg", "bcg.interleave_bcg")),
    *(EXECUTOR + name for name in ("forward_batch_info", "input_buffers", "model_runner", "runner_utils.buffers")),
    *(EXECUTOR + name for name in ("cuda_graph_buffer_registry", "cuda_graph_config")),
    *(EXECUTOR + "runner." + name for name in ("base_runner", "base_cuda_graph_runner", "shape_key")),
    *(
        SRT + name
        for name in ("environ", "utils", "utils.common", "layers.utils.cp_utils", "layers.attention.dsa.utils")
    ),
    RUNNER,
)
MODEL = "Glm5NextForConditionalGeneration"  # the one architecture with interleave graphs, where that is looked at


class Bag:
    """Process state by name. A name that is missing here is the adapter's fault, never the engine's answer."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the engine asks its process for {name!r}, which this adapter does not supply")


class Process:
    """A release and the state that its code looks up. `enter` makes it the process of one CP rank."""

    def __init__(self, package_root: Path) -> None:
        self.group: Callable[[Any, Any], None] = lambda output, local: None  # the all-gather of the CP group
        self.parallel, self.args, self.execution = self._parallel(), server_args(), execution()
        self.tree = Hermetic(package_root, "sglang", LEAVES, supported=SUPPORTED)
        self._provide()
        self.base, self.cp = self.tree.load(CP + "base"), self.tree.load(CP + "utils")
        name = "is_cp_active" if hasattr(self.cp, "is_cp_active") else "is_cp_v2_active"
        self.is_cp_active = self.tree.symbol(CP + "utils", name)
        for module, symbol in (("utils", "prepare_cp_forward"), ("base", "get_cp_strategy"), ("base", "_STRATEGY")):
            self.tree.symbol(CP + module, symbol)
        self.batches = self.tree.load(EXECUTOR + "forward_batch_info")
        self.fields = frozenset(inspect.signature(self.batches.ForwardBatch).parameters)

    def _parallel(self) -> Any:
        collective = Bag(all_gather_into_tensor=lambda output, local: self.group(output, local), barrier=lambda: None)
        return Bag(
            attn_cp_rank=0, attn_cp_size=1, attn_cp_group=collective, tp_group=collective, tp_rank=0, tp_size=1,
            attn_tp_size=1, attn_tp_rank=0, dp_size=1, num_dp_ranks=1, pp_size=1, moe_ep_size=1,
            enable_dp_attention=False, attn_dp_enabled=False, moe_dense_tp_size=None, disable_attn_tp_gather=False,
            enable_cp_tp_group_sharing=False, enable_prefill_cp=False, cp_strategy=None,
            enable_prefill_context_parallel=False, enable_dsa_prefill_context_parallel=False,
        )  # fmt: skip

    def _provide(self) -> None:
        """In place before any module of the release is executed, so that its imports find it."""
        provide, a2a = self.tree.provide, Bag(is_none=lambda: True, is_customized=lambda: False)
        provide(
            SRT + "runtime_context",
            get_parallel=lambda: self.parallel,
            get_server_args=lambda: self.args,
            get_device=lambda: self.args,
            get_exec=lambda: self.execution,
            get_schedule=lambda: Bag(enable_mixed_chunk=False, disable_chunked_prefix_cache=True),
            process_model_config=self.args.get_model_config,
        )
        provide(
            SRT + "arg_groups.overrides",
            resolved_view=lambda args: args,
            resolving_view=lambda args: args,
            attention_backends_of=lambda args: args._resolved_attention_backends(),
            model_config_of=lambda args: args.get_model_config(),
        )
        gather = self.parallel.attn_cp_group.all_gather_into_tensor
        provide(SRT + "layers.dp_attention", attn_cp_all_gather_into_tensor=gather)
        provide(SRT + "layers.moe.utils", get_moe_a2a_backend=lambda: a2a)
        on = Bag(get=lambda: True)  # the only path that later releases have
        type(self.tree.symbol(SRT + "environ", "envs")).SGLANG_ENABLE_CP_V2 = on

    def enter(self, cp_size: int, strategy: str, cp_rank: int) -> Any:
        """Become rank `cp_rank` of a group that was started with `strategy`; the release's strategy object or None."""
        if (cp_size, strategy) != (self.parallel.attn_cp_size, self.parallel.cp_strategy):
            self._configure(cp_size, strategy)
        self.parallel.attn_cp_rank = self.parallel.tp_rank = cp_rank
        return self.base.get_cp_strategy()

    def _configure(self, cp_size: int, strategy: str) -> None:
        """What the public flags `--enable-prefill-cp --cp-strategy S` resolve to; size 1 is a server without them."""
        mode = "in-seq-split" if strategy == "zigzag" else "round-robin-split"
        flags = {"enable_prefill_cp": cp_size > 1, "attn_cp_size": cp_size, "tp_size": cp_size, "cp_strategy": strategy}
        flags |= {"prefill_cp_mode": mode, "dsa_prefill_cp_mode": mode, "enable_prefill_context_parallel": cp_size > 1}
        vars(self.parallel).update(flags)
        vars(self.args).update(flags)
        self.base._STRATEGY = None  # the release makes it anew when it looks next

    def batch(self, batch: Batch) -> Any:
        """The release's ForwardBatch of an extend pass. Lengths that are not known are missing on the host alone."""
        import torch

        def ints(values: Any) -> Any:
            return torch.tensor(list(values), dtype=torch.int64)

        bs, num_tokens = len(batch.lengths), max(batch.num_tokens, 0)
        seq_lens = ints(p + length for p, length in zip(batch.prefixes, batch.lengths, strict=True))
        values = {
            "forward_mode": self.batches.ForwardMode.EXTEND,
            "batch_size": bs,
            "input_ids": torch.zeros(num_tokens, dtype=torch.int64),
            "positions": torch.zeros(num_tokens, dtype=torch.int64),
            "out_cache_loc": torch.arange(num_tokens),
            "req_pool_indices": torch.arange(bs),
            "seq_lens": seq_lens,
            "seq_lens_cpu": seq_lens,
            "orig_seq_lens": seq_lens,
            "seq_lens_sum": sum(batch.prefixes) + sum(batch.lengths),
            "extend_num_tokens": num_tokens,
            "extend_seq_lens": ints(batch.lengths),
            "extend_prefix_lens": ints(batch.prefixes),
            "extend_start_loc": ints([*accumulate(batch.lengths, initial=0)][:bs]),
            "extend_seq_lens_cpu": list(batch.lengths) if batch.lengths_known else None,
            "extend_prefix_lens_cpu": list(batch.prefixes),
            "kv_loc_plan": Bag(bind_replay=lambda *args, **options: None),
        }
        return self.batches.ForwardBatch(**{name: value for name, value in values.items() if name in self.fields})


def server_args() -> Any:
    """The command line of the server; `backend` is its attention backend for prefill."""
    args: Any = Bag(device="cpu", pp_size=1, dp_size=1, ep_size=1, backend="")
    vars(args).update(enable_lora=False, enable_pdmux=False, enable_cudagraph_gc=True)
    args.enable_mamba_extra_buffer = args.use_mla_backend = lambda: False
    args.get_model_config = lambda: Bag(hf_config=Bag(architectures=[MODEL]))
    args._resolved = lambda: args
    args._resolved_attention_backends = lambda: (args.backend, args.backend)
    return args


def execution() -> Any:
    return Bag(
        moe=Bag(elastic_ep_backend=None),
        overlap=Bag(enable_two_batch_overlap=False),
        mamba=Bag(enable_mamba_extra_buffer=False),
        graph=Bag(enable_cudagraph_gc=True),
        features=Bag(enable_return_hidden_states=False, return_hidden_states_mode=None),
    )
