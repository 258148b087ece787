from dataclasses import dataclass

from vllm.config.compilation import CUDAGraphMode


@dataclass(frozen=True)
class BatchExecutionDescriptor:
    cg_mode: CUDAGraphMode
    num_tokens: int
    num_reqs: int | None
    uniform_token_count: int | None = None


def get_uniform_token_count(num_reqs, num_tokens, max_query_len):
    return max_query_len if num_tokens == num_reqs * max_query_len else None


class CudaGraphManager:
    def __init__(self, vllm_config, device, cudagraph_mode, decode_query_len):
        self._graphs_captured = False
        self._capture_descs = {}
        most = vllm_config.scheduler_config.max_num_seqs
        for size in vllm_config.compilation_config.cudagraph_capture_sizes:
            decodes, others = cudagraph_mode.of_decodes(), cudagraph_mode.of_others()
            requests = -(-size // decode_query_len)
            if decodes is not others and requests <= most:
                self._add(decodes, requests * decode_query_len, requests, decode_query_len)
            if others:
                self._add(others, size, min(size, most) if others is CUDAGraphMode.FULL else None)

    def _add(self, mode, size, requests, uniform=None):
        graphs = self._capture_descs.setdefault(mode, [])
        graphs.append(BatchExecutionDescriptor(mode, size, requests, uniform))

    def dispatch(self, num_reqs, num_tokens, uniform_token_count):
        for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE):
            for graph in sorted(self._capture_descs.get(mode, ()), key=lambda graph: graph.num_tokens):
                alike = graph.uniform_token_count in (None, uniform_token_count)
                enough = graph.num_tokens >= num_tokens and (graph.num_reqs or num_reqs) >= num_reqs
                if self._graphs_captured and alike and enough:
                    return graph
        return BatchExecutionDescriptor(CUDAGraphMode.NONE, num_tokens, num_reqs)
