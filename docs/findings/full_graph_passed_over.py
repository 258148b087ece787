"""Under speculative decoding a step is given a lesser graph than one that was captured for it, or none.

usage: python full_graph_passed_over.py DIR      DIR: an unpacked vllm wheel, 0.27.1; needs torch
"""

from load_vllm import CUDAGraphMode, config, load

CudaGraphManager = load("vllm.v1.worker.gpu.cudagraph_utils").CudaGraphManager


def show(what, sizes, decode_query_len, **step):
    both = CUDAGraphMode.FULL_AND_PIECEWISE
    manager = CudaGraphManager(config(sizes, 13, decode_query_len - 1), "cpu", both, decode_query_len=decode_query_len)
    manager._graphs_captured = True
    graphs = [graph for graphs in manager._capture_descs.values() for graph in graphs]
    captured = ", ".join(f"{graph.cg_mode} {graph.num_tokens}" for graph in graphs)
    chosen = manager.dispatch(num_reqs=1, num_active_loras=0, **step)
    print(f"captured {captured}: {what} runs in {chosen.cg_mode} {chosen.num_tokens}")


show("one decode of 3 tokens", [4, 10], 3, num_tokens=3, uniform_token_count=3)
show("one prefill of 3 tokens", [2, 7], 4, num_tokens=3, uniform_token_count=None)
