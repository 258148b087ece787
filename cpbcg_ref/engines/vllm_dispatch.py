"""vLLM's choice of a CUDA graph on every rank of a data-parallel group, by both model runners.

v2: `CudaGraphManager`, through `dispatch_cg_and_sync_dp`. v1: `CudagraphDispatcher` and `coordinate_batch_across_dp`,
through the runner's `_determine_batch_execution_and_padding`; a caller that rules modes out calls the dispatcher.
Supplied are the configuration, the group and its all-reduce.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cpbcg_ref.answers import Graph
from cpbcg_ref.cases import DispatchCase
from cpbcg_ref.engines.all_reduce import AllReduce
from cpbcg_ref.engines.contract import Dispatcher
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.supplied import Bag, always

GPU = "vllm.v1.worker.gpu."
MANAGER, SYNC = GPU + "cudagraph_utils", GPU + "dp_utils"
KEYS, SYNC_V1, RUNNER_V1 = "vllm.v1.cudagraph_dispatcher", "vllm.v1.worker.dp_utils", "vllm.v1.worker.gpu_model_runner"
MODES, UNIFORM = "vllm.config.compilation", "vllm.v1.worker.utils"
REAL = (MODES, "vllm.forward_context", "vllm.utils.math_utils", MANAGER, SYNC, KEYS, SYNC_V1, RUNNER_V1, UNIFORM)
DETERMINE = "GPUModelRunner._determine_batch_execution_and_padding"

# What is captured for steps of decodes, and for the others.
CONFIGURED = {"FULL_AND_PIECEWISE": ("FULL", "PIECEWISE"), "FULL": ("FULL",)}
CONFIGURED |= {"PIECEWISE": ("PIECEWISE",), "FULL_DECODE_ONLY": ("FULL",)}
SPECULATIVE = (1, 3, 2, 3, 4)  # tokens of a decode: 1 and the speculative ones
# The configuration of v1 rounds its ladder to whole decodes where decodes have FULL graphs.
DISPATCHERS = {
    f"v2 {mode}": Dispatcher(modes=modes, tokens_per_decode=SPECULATIVE) for mode, modes in CONFIGURED.items()
}
DISPATCHERS |= {
    f"v1 {mode}": Dispatcher(modes=modes, tokens_per_decode=SPECULATIVE, choosable=True, multiples="FULL" in modes)
    for mode, modes in CONFIGURED.items()
}


class VLLMDispatch:
    """The method of the capability `dispatch`, see `contract`. root: the folder that contains `vllm`.

    Raises TargetError if the release lacks one of the symbols.
    """

    def __init__(self, root: Path) -> None:
        self.roots, self.all_reduce = (str(root / "vllm"),), AllReduce(lambda all: all.sum(0))
        self.tree = tree = Hermetic(root, "vllm", REAL)
        group = Bag(device="cpu", device_group=None, cpu_group=None, cpu_all_reduce_=self.all_reduce)
        tree.provide("vllm.distributed.parallel_state", get_dp_group=always(group))
        tree.provide("vllm.utils.torch_utils", PIN_MEMORY=False)
        self.mode = tree.symbol(MODES, "CUDAGraphMode")
        tree.provide("vllm.config", CUDAGraphMode=self.mode)
        for module in (SYNC, SYNC_V1):
            tree.load(module)
            tree.provide(module, dist=Bag(all_reduce=self.all_reduce))
        self.manager = tree.symbol(MANAGER, "CudaGraphManager.dispatch") and tree.symbol(MANAGER, "CudaGraphManager")
        self.sync = tree.symbol(SYNC, "dispatch_cg_and_sync_dp")
        self.keys = tree.symbol(KEYS, "CudagraphDispatcher.dispatch") and tree.symbol(KEYS, "CudagraphDispatcher")
        self.runner = tree.symbol(RUNNER_V1, DETERMINE) and tree.symbol(RUNNER_V1, "GPUModelRunner")
        apart = "get_uniform_decode_token_count"
        self.tells_prefills = tree.has(UNIFORM) and hasattr(tree.load(UNIFORM), apart)
        module, name = (UNIFORM, apart) if self.tells_prefills else (MANAGER, "get_uniform_token_count")
        self.uniform = tree.symbol(module, name)

    def start_dispatcher(self, case: DispatchCase) -> "Manager | Keys":
        return (Manager if case.setup.startswith("v2") else Keys)(self, case)

    def configured(self, case: DispatchCase, mode: Any, rank: int = 0) -> Any:
        """What a server of this case has configured, as its rank `rank` sees it."""
        ladder, ranks = list(case.capture_num_tokens), len(case.ranks)
        compilation = Bag(
            cudagraph_capture_sizes=ladder,
            max_cudagraph_capture_size=ladder[-1],
            cudagraph_mode=mode,
            is_attention_compiled_piecewise=always(True),
            compile_sizes=[],
            pass_config=Bag(enable_sp=False),
        )
        parallel = Bag(
            data_parallel_size=ranks,
            data_parallel_rank=rank,
            tensor_parallel_size=1,
            num_ubatches=1,
            disable_nccl_for_dp_synchronization=True,
        )
        return Bag(
            compilation_config=compilation,
            parallel_config=parallel,
            scheduler_config=Bag(max_num_seqs=case.max_requests),
            cache_config=Bag(use_kda_recoverssm=False),
            observability_config=Bag(cudagraph_metrics=False),
            speculative_config=None,
            lora_config=None,
            num_speculative_tokens=case.tokens_per_decode - 1,
        )

    def each_rank(self, case: DispatchCase, ask: Any) -> list[Any]:
        return self.all_reduce.each_rank(self, len(case.ranks), ask)


def sizes(case: DispatchCase, rank: int) -> tuple[list[int], int, int]:
    """Tokens of each request of a rank, how many requests, how many tokens."""
    step = case.ranks[rank]
    lengths = [case.tokens_per_decode] * step.decodes + list(step.prefills)
    return lengths, len(lengths), sum(lengths)


class Manager:
    """v2: one manager serves all ranks, which are configured alike."""

    def __init__(self, engine: VLLMDispatch, case: DispatchCase) -> None:
        self.engine, self.case = engine, case
        mode = engine.mode[case.setup.split()[1]]
        self.manager = engine.manager(engine.configured(case, mode), "cpu", mode, case.tokens_per_decode)
        self.manager._graphs_captured = True

    def captured(self) -> list[Graph]:
        return [self.graph(one) for some in self.manager._capture_descs.values() for one in some]

    def dispatch(self) -> list[Any]:
        return self.engine.each_rank(self.case, self.choose)

    def choose(self, rank: int) -> Graph | None:
        lengths, requests, total = sizes(self.case, rank)
        apart = {"decode_graph_eligible": not self.case.ranks[rank].prefills} if self.engine.tells_prefills else {}
        uniform = self.engine.uniform(requests, total, max(lengths), **apart)
        ranks = len(self.case.ranks)
        chosen, _ = self.engine.sync(self.manager, requests, total, uniform, dp_size=ranks, dp_rank=rank)
        return self.graph(chosen) if chosen.cg_mode else None

    def graph(self, one: Any) -> Graph:
        """A graph for decodes is told by the tokens of each request, whatever request that is; later releases tell
        prefills apart before they ask."""
        decodes = one.uniform_token_count is not None and self.engine.tells_prefills
        return Graph(
            mode=one.cg_mode.name,
            num_tokens=one.num_tokens,
            num_requests=one.num_reqs,
            num_prefills=0 if decodes else None,
            tokens_per_request=one.uniform_token_count,
        )


class Keys:
    """v1: a dispatcher and a runner for each rank."""

    def __init__(self, engine: VLLMDispatch, case: DispatchCase) -> None:
        self.engine, self.case = engine, case
        self.mode = engine.mode[case.setup.split()[1]]
        self.runners = [self.start(rank) for rank in range(len(case.ranks))]

    def start(self, rank: int) -> Any:
        config = self.engine.configured(self.case, self.mode, rank)
        runner = object.__new__(self.engine.runner)
        runner.vllm_config, runner.uniform_decode_query_len = config, self.case.tokens_per_decode
        runner.compilation_config, runner.parallel_config = config.compilation_config, config.parallel_config
        runner.model_config, runner.input_batch = Bag(is_encoder_decoder=False), Bag(lora_id_to_lora_request={})
        runner.cudagraph_dispatcher = self.engine.keys(config)
        runner.cudagraph_dispatcher.initialize_cudagraph_keys(self.mode, self.case.tokens_per_decode)
        return runner

    def captured(self) -> list[Graph]:
        captured = self.runners[0].cudagraph_dispatcher.get_capture_descs()
        return [self.graph(mode, one) for mode, some in captured for one in some]

    def modes(self, names: Iterable[str], *, eager: bool) -> set[Any]:
        return {self.engine.mode[name] for name in (*names, *["NONE"] * eager)}

    def dispatch(self, **modes: set[Any]) -> list[Any]:
        if modes:
            return self.engine.each_rank(self.case, lambda rank: self.choose(rank, **modes))
        return self.engine.each_rank(self.case, self.determine)

    def determine(self, rank: int) -> Graph | None:
        lengths, requests, total = sizes(self.case, rank)
        given = {"num_tokens": total, "num_reqs": requests, "max_num_scheduled_tokens": max(lengths)}
        determine = self.runners[rank]._determine_batch_execution_and_padding
        required = inspect.signature(determine).parameters.values()
        absent = {one.name: None for one in required if one.default is one.empty and one.name not in given}
        mode, chosen, *_ = determine(**given, **absent, allow_microbatching=False)
        return self.graph(mode, chosen) if mode else None

    def choose(self, rank: int, *, allowed: set[Any] | None = None, excluded: set[Any] | None = None) -> Graph | None:
        lengths, requests, total = sizes(self.case, rank)
        runner = self.runners[rank]
        how = {"num_tokens": total, "num_reqs": requests, "max_num_scheduled_tokens": max(lengths)}
        uniform = runner._is_uniform_decode(uniform_decode_query_len=runner.uniform_decode_query_len, **how)
        dispatch = runner.cudagraph_dispatcher.dispatch
        mode, chosen = dispatch(total, uniform_decode=uniform, valid_modes=allowed, invalid_modes=excluded)
        return self.graph(mode, chosen) if mode else None

    def graph(self, mode: Any, one: Any) -> Graph:
        each = self.case.tokens_per_decode if one.uniform else None
        return Graph(mode=mode.name, num_tokens=one.num_tokens, num_requests=one.num_reqs, tokens_per_request=each)
