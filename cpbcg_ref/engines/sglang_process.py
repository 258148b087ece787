"""What SGLang's code finds around it when it runs: one release, and the process state of one virtual rank at a time."""

import inspect
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.supplied import Bag, always, ints

SRT = "sglang.srt."
CP = SRT + "layers.cp."
EXECUTOR = SRT + "model_executor."
RUNNER = EXECUTOR + "runner.prefill_cuda_graph_runner"
BELOW = {
    SRT: "environ utils utils.common layers.utils.cp_utils layers.attention.dsa.utils model_executor.cuda_graph_config",
    CP: "base zigzag interleave padding utils bcg bcg.bcg bcg.zigzag_bcg bcg.interleave_bcg",
    EXECUTOR: "forward_batch_info input_buffers model_runner runner_utils.buffers cuda_graph_buffer_registry",
    EXECUTOR + "runner.": "base_runner base_cuda_graph_runner prefill_cuda_graph_runner shape_key",
}
LEAVES = tuple(prefix + name for prefix, names in BELOW.items() for name in names.split())
MODEL = "Glm5NextForConditionalGeneration"  # the one architecture with interleave graphs, where that is looked at


class Process:
    """A release and the state that its code looks up. `enter` makes it the process of one CP rank."""

    def __init__(self, package_root: Path) -> None:
        self.group: Callable[[Any, Any], None] = always(None)  # the all-gather of the CP group: (output, local)
        self.parallel, self.args = self._parallel(), server_args()
        moe, overlap = Bag(elastic_ep_backend=None), Bag(enable_two_batch_overlap=False)
        mamba, graph = Bag(enable_mamba_extra_buffer=False), Bag(enable_cudagraph_gc=True)
        features = Bag(enable_return_hidden_states=False, return_hidden_states_mode=None)
        self.execution = Bag(moe=moe, overlap=overlap, mamba=mamba, graph=graph, features=features)
        self.tree = Hermetic(package_root, "sglang", LEAVES)
        self._provide()
        self.base, self.cp = self.tree.load(CP + "base"), self.tree.load(CP + "utils")
        name = "is_cp_active" if hasattr(self.cp, "is_cp_active") else "is_cp_v2_active"
        self.is_cp_active = self.tree.symbol(CP + "utils", name)
        for module, symbol in (("utils", "prepare_cp_forward"), ("base", "get_cp_strategy"), ("base", "_STRATEGY")):
            self.tree.symbol(CP + module, symbol)
        self.batches = self.tree.load(EXECUTOR + "forward_batch_info")
        self.fields = frozenset(inspect.signature(self.batches.ForwardBatch).parameters)

    def _parallel(self) -> Any:
        collective = Bag(all_gather_into_tensor=lambda output, local: self.group(output, local), barrier=always(None))
        return Bag(
            attn_cp_rank=0, attn_cp_size=1, attn_cp_group=collective, tp_group=collective, tp_rank=0, tp_size=1,
            attn_tp_size=1, attn_tp_rank=0, dp_size=1, num_dp_ranks=1, pp_size=1, moe_ep_size=1,
            enable_dp_attention=False, attn_dp_enabled=False, moe_dense_tp_size=None, disable_attn_tp_gather=False,
            enable_cp_tp_group_sharing=False, enable_prefill_cp=False, cp_strategy=None,
            enable_prefill_context_parallel=False, enable_dsa_prefill_context_parallel=False,
        )  # fmt: skip

    def _provide(self) -> None:
        """In place before any module of the release is executed, so that its imports find it."""
        provide, args = self.tree.provide, always(self.args)
        context, overrides = SRT + "runtime_context", SRT + "arg_groups.overrides"
        schedule = Bag(enable_mixed_chunk=False, disable_chunked_prefix_cache=True)
        provide(context, get_parallel=always(self.parallel), get_exec=always(self.execution))
        provide(context, get_server_args=args, get_device=args, get_schedule=always(schedule))
        provide(context, process_model_config=self.args.get_model_config)
        provide(overrides, resolved_view=args, resolving_view=args, model_config_of=self.args.get_model_config)
        provide(overrides, attention_backends_of=self.args._resolved_attention_backends)
        gather = self.parallel.attn_cp_group.all_gather_into_tensor
        provide(SRT + "layers.dp_attention", attn_cp_all_gather_into_tensor=gather)
        a2a = Bag(is_none=always(True), is_customized=always(False))
        provide(SRT + "layers.moe.utils", get_moe_a2a_backend=always(a2a))
        # The second CP implementation is the only one that later releases have.
        type(self.tree.symbol(SRT + "environ", "envs")).SGLANG_ENABLE_CP_V2 = Bag(get=always(True))

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

        bs, num_tokens, lengths = len(batch.lengths), max(batch.num_tokens, 0), list(batch.lengths)
        seq_lens = ints(p + length for p, length in zip(batch.prefixes, batch.lengths, strict=True))
        each_token = torch.arange(num_tokens)
        values = {
            "forward_mode": self.batches.ForwardMode.EXTEND, "batch_size": bs, "req_pool_indices": torch.arange(bs),
            "input_ids": torch.zeros_like(each_token), "positions": torch.zeros_like(each_token),
            "out_cache_loc": each_token, "kv_loc_plan": Bag(bind_replay=always(None)),
            "seq_lens": seq_lens, "seq_lens_cpu": seq_lens, "orig_seq_lens": seq_lens,
            "seq_lens_sum": sum(batch.prefixes) + sum(lengths), "extend_num_tokens": num_tokens,
            "extend_seq_lens": ints(lengths), "extend_seq_lens_cpu": lengths if batch.lengths_known else None,
            "extend_prefix_lens": ints(batch.prefixes), "extend_prefix_lens_cpu": list(batch.prefixes),
            "extend_start_loc": ints([*accumulate(lengths, initial=0)][:bs]),
        }  # fmt: skip
        return self.batches.ForwardBatch(**{name: value for name, value in values.items() if name in self.fields})


def server_args() -> Any:
    """The command line of the server; `backend` is its attention backend for prefill."""
    args: Any = Bag(
        device="cpu", pp_size=1, dp_size=1, ep_size=1, backend="", enable_lora=False, enable_pdmux=False,
        enable_cudagraph_gc=True, enable_mamba_extra_buffer=always(False), use_mla_backend=always(False),
        get_model_config=always(Bag(hf_config=Bag(architectures=[MODEL]))),
    )  # fmt: skip
    args._resolved = always(args)
    args._resolved_attention_backends = lambda *asked: (args.backend, args.backend)
    return args
