import torch
import torch.distributed as dist
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed.parallel_state import get_dp_group
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor


def dispatch_cg_and_sync_dp(cudagraph_manager, num_reqs, num_tokens, uniform_token_count, dp_size, dp_rank):
    chosen = cudagraph_manager.dispatch(num_reqs, num_tokens, uniform_token_count)
    if dp_size == 1:
        return chosen, None
    told = torch.zeros(3, dp_size, dtype=torch.int32)
    told[:, dp_rank] = torch.tensor([num_tokens, chosen.cg_mode.value, uniform_token_count or 0])
    dist.all_reduce(told, group=get_dp_group().cpu_group)
    if not told[1].min():
        return BatchExecutionDescriptor(CUDAGraphMode.NONE, num_tokens, num_reqs), told[0]
    uniform = int(told[2].max()) if told[2].min() == told[2].max() else None
    return cudagraph_manager.dispatch(num_reqs, int(told[0].max()), uniform or None), told[0]
