from dataclasses import dataclass

from vllm.config import CUDAGraphMode


@dataclass(frozen=True)
class BatchDescriptor:
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False


class CudagraphDispatcher:
    def __init__(self, vllm_config):
        self.sizes = vllm_config.compilation_config.cudagraph_capture_sizes
        self.most = vllm_config.scheduler_config.max_num_seqs
        self.each = 1 + vllm_config.num_speculative_tokens
        self.graphs = {}

    def initialize_cudagraph_keys(self, cudagraph_mode, uniform_decode_query_len):
        decodes, others = cudagraph_mode.of_decodes(), cudagraph_mode.of_others()
        for size in self.sizes:
            if others:
                requests = min(size, self.most) if others is CUDAGraphMode.FULL else None
                self.graphs.setdefault(others, []).append(BatchDescriptor(size, requests))
            if decodes is not others and size <= self.most * uniform_decode_query_len:
                decode = BatchDescriptor(size, size // uniform_decode_query_len, uniform=True)
                self.graphs.setdefault(decodes, []).append(decode)

    def get_capture_descs(self):
        return list(self.graphs.items())

    def dispatch(self, num_tokens, uniform_decode=False, valid_modes=None, invalid_modes=None):
        allowed = set(valid_modes or CUDAGraphMode) - (invalid_modes or set())
        for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE):
            for graph in self.graphs.get(mode, ()) if mode in allowed else ():
                if graph.num_tokens >= num_tokens and (uniform_decode or not graph.uniform):
                    return mode, graph
        assert CUDAGraphMode.NONE in allowed, "no graph, and eager is not allowed"
        return CUDAGraphMode.NONE, BatchDescriptor(num_tokens)
