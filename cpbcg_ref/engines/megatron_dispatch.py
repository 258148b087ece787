"""Megatron-core's choice of a CUDA graph: `CUDAGraphBatchDimensionBuilder`, asked as every rank of an expert-parallel
group. The dimensions are the release's own; supplied are the group and its all-reduce."""

from pathlib import Path
from typing import Any

from cpbcg_ref.answers import Graph
from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.engines.all_reduce import AllReduce
from cpbcg_ref.engines.contract import Dispatcher
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.supplied import Bag, always

DIMENSIONS = "megatron.core.inference.batch_dimensions_utils"
MIXED_PREFILLS = 16  # default of the inference context, which also captures up to `max_requests` tokens
# The context captures a graph of as many tokens as it has requests. It asks with tp_size, of which `max_requests` has
# to be a multiple: 1 here. Hybrid models match strictly.
DISPATCHERS = {
    "not strict": Dispatcher(even=True),
    "strict": Dispatcher(even=True),
    "decodes only": Dispatcher(even=True),
}


class MegatronDispatch:
    """The method of the capability `dispatch`, see `contract`. root: the folder that contains `megatron`.

    Raises TargetError if the release has no such builder.
    """

    def __init__(self, root: Path) -> None:
        import torch

        self.roots, self.all_reduce, self._size = (str(root / "megatron"),), AllReduce(lambda all: all.amax(0)), 1
        collectives = {"all_reduce": self.all_reduce, "ReduceOp": torch.distributed.ReduceOp}
        collectives |= {"ProcessGroup": torch.distributed.ProcessGroup}
        cpu = {"cuda": Bag(current_device=always("cpu")), "distributed": Bag(**collectives)}
        tree = Hermetic(root, "megatron", [DIMENSIONS], torch=Bag(**vars(torch) | cpu))
        tree.provide("megatron.core.utils", get_pg_size=lambda group: group.size)
        self.builder = tree.symbol(DIMENSIONS, "CUDAGraphBatchDimensionBuilder")
        self.dimensions = tree.symbol(DIMENSIONS, "InferenceBatchDimensions")

    def start_dispatcher(self, case: DispatchCase) -> "Started":
        return Started(self, case)


class Started:
    """Graphs captured as a case says."""

    def __init__(self, engine: MegatronDispatch, case: DispatchCase) -> None:
        self.engine, self.case, self.strict = engine, case, case.setup == "strict"
        self.decodes_only = case.setup == "decodes only"
        self.dimensions, _ = engine.builder.generate_cuda_graph_batch_dimensions_list(
            tp_size=1,
            num_cuda_graphs=len(case.capture_num_tokens),
            cuda_graph_max_tokens=case.max_requests,
            cuda_graph_mixed_prefill_count=MIXED_PREFILLS,
            max_requests=case.max_requests,
            max_tokens=1 << 20,
            max_sequence_length=1 << 20,
            use_cuda_graphs_for_non_decode_steps=not self.decodes_only,
        )

    def captured(self) -> list[Graph]:
        return [self.graph(one) for one in self.dimensions]

    def dispatch(self) -> list[Any]:
        return self.engine.all_reduce.each_rank(self.engine, len(self.case.ranks), self.match)

    def match(self, rank: int) -> Graph | None:
        chosen = self.engine.builder.match_graph_config(
            self.real(self.case.ranks[rank]),
            self.dimensions,
            strict=self.strict,
            decode_only_cuda_graphs=self.decodes_only,
            ep_group=Bag(size=len(self.case.ranks)),
        )
        return chosen and self.graph(chosen)

    def real(self, step: Step) -> Any:
        total = step.decodes * self.case.tokens_per_decode + sum(step.prefills)
        return self.engine.dimensions(
            token_count=total, prefill_req_count=len(step.prefills), decode_req_count=step.decodes
        )

    def graph(self, one: Any) -> Graph:
        """A graph with prefills is not for steps of decodes alone; its prefill slots take decodes unless strict."""
        return Graph(
            num_tokens=one.token_count,
            num_requests=one.prefill_req_count + one.decode_req_count,
            num_prefills=one.prefill_req_count,
            num_decodes=one.decode_req_count if self.strict or not one.prefill_req_count else None,
            needs_prefill=one.prefill_req_count > 0,
        )
