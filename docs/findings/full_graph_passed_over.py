"""A decode that a captured FULL graph can run, under speculative decoding, is given a PIECEWISE graph.

usage: python full_graph_passed_over.py DIR      DIR: an unpacked vllm wheel, 0.27.1; needs torch
"""

from load_vllm import CUDAGraphMode, config, load

CudaGraphManager = load("vllm.v1.worker.gpu.cudagraph_utils").CudaGraphManager
manager = CudaGraphManager(config([4, 10], 13, 2), "cpu", CUDAGraphMode.FULL_AND_PIECEWISE, decode_query_len=3)
manager._graphs_captured = True
captured = [graph for graphs in manager._capture_descs.values() for graph in graphs]
print("captured:", ", ".join(f"{graph.cg_mode} {graph.num_tokens}" for graph in captured))
chosen = manager.dispatch(num_reqs=1, num_tokens=3, uniform_token_count=3, num_active_loras=0)
print(f"one decode of 3 tokens runs in {chosen.cg_mode} {chosen.num_tokens}")
