from vllm.config import CUDAGraphMode
from vllm.v1.worker.dp_utils import coordinate_batch_across_dp
from vllm.v1.worker.lora_model_runner_mixin import LoRAModelRunnerMixin


class GPUModelRunner(LoRAModelRunnerMixin):
    @staticmethod
    def _is_uniform_decode(max_num_scheduled_tokens, uniform_decode_query_len, num_tokens, num_reqs):
        return (
            max_num_scheduled_tokens == uniform_decode_query_len and num_tokens == num_reqs * uniform_decode_query_len
        )

    def _determine_batch_execution_and_padding(
        self, num_tokens, num_reqs, num_scheduled_tokens_np, max_num_scheduled_tokens, allow_microbatching=True
    ):
        uniform = self._is_uniform_decode(max_num_scheduled_tokens, self.uniform_decode_query_len, num_tokens, num_reqs)
        mode, graph = self.cudagraph_dispatcher.dispatch(num_tokens, uniform)
        if self.parallel_config.data_parallel_size > 1:
            _, sizes, lowest = coordinate_batch_across_dp(
                num_tokens, allow_microbatching, self.parallel_config, mode.value
            )
            allowed = {CUDAGraphMode(lowest), CUDAGraphMode.NONE}
            mode, graph = self.cudagraph_dispatcher.dispatch(int(sizes.max()), uniform, valid_modes=allowed)
        return mode, graph, False, None, None
