"""The dispatcher takes modes out of the set that its caller passed.

usage: python modes_changed.py DIR      DIR: an unpacked vllm wheel, 0.27.1 or 0.33.0; needs torch
"""

from load_vllm import CUDAGraphMode, config, load

FULL, PIECEWISE, NONE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE, CUDAGraphMode.NONE
dispatcher = load("vllm.v1.cudagraph_dispatcher").CudagraphDispatcher(config([3, 6], 2, 2))
dispatcher.initialize_cudagraph_keys(CUDAGraphMode.FULL_AND_PIECEWISE, 3)
allowed = {FULL, PIECEWISE, NONE}
mode, graph = dispatcher.dispatch(3, uniform_decode=True, valid_modes=allowed, invalid_modes={FULL})
print(f"first call, without FULL: {mode} {graph.num_tokens}; the set is {sorted(map(str, allowed))} now")
mode, graph = dispatcher.dispatch(3, uniform_decode=True, valid_modes=allowed)
print(f"second call, nothing ruled out, the same set: {mode} {graph.num_tokens}")
