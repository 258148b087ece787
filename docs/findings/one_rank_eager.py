"""One rank of an expert-parallel group replays a graph, the other runs eager or replays a graph of another size.

usage: python one_rank_eager.py DIR      DIR: an unpacked megatron-core wheel, 0.16.1; needs torch
"""

import importlib

import torch
from mocks import PACKAGES, load

PACKAGES.add("megatron")
importlib.import_module("megatron.core.utils").get_pg_size = len  # a group is a list of ranks here
module = load("megatron.core.inference.batch_dimensions_utils")
Builder, Dimensions = module.CUDAGraphBatchDimensionBuilder, module.InferenceBatchDimensions


def show(title, max_requests, num_cuda_graphs, ranks, strict):
    # The arguments that DynamicInferenceContext hands over, with its default of 16 prefills in a mixed graph.
    graphs, _ = Builder.generate_cuda_graph_batch_dimensions_list(
        tp_size=1,
        num_cuda_graphs=num_cuda_graphs,
        cuda_graph_max_tokens=max_requests,
        cuda_graph_mixed_prefill_count=16,
        max_requests=max_requests,
        max_tokens=16384,
        max_sequence_length=2560,
        use_cuda_graphs_for_non_decode_steps=True,
    )
    print(f"{title}: captured {', '.join(map(str, graphs))}")
    most = max(rank.token_count for rank in ranks)
    prefills = max(int(rank.prefill_req_count > 0) for rank in ranks)
    torch.cuda.current_device = lambda: "cpu"
    torch.distributed.all_reduce = lambda tensor, **group: tensor.copy_(torch.tensor([most, prefills, 0]))
    for number, rank in enumerate(ranks):
        chosen = Builder.match_graph_config(rank, graphs, strict=strict, ep_group=ranks)
        print(f"rank {number} has {rank}: {'eager' if chosen is None else f'replays {chosen}'}")


decode = Dimensions(token_count=1, prefill_req_count=0, decode_req_count=1)
mixed = Dimensions(token_count=2, prefill_req_count=1, decode_req_count=1)
show("strict, 2 requests, 1 graph", 2, 1, [decode, mixed], True)
show("not strict, 16 requests, 2 graphs", 16, 2, [decode, mixed], False)
