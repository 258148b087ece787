import torch
import torch.distributed as dist
from vllm.distributed.parallel_state import get_dp_group


def coordinate_batch_across_dp(num_tokens_unpadded, allow_microbatching, parallel_config, cudagraph_mode):
    told = torch.zeros(2, parallel_config.data_parallel_size, dtype=torch.int32)
    told[:, parallel_config.data_parallel_rank] = torch.tensor([num_tokens_unpadded, cudagraph_mode])
    dist.all_reduce(told, group=get_dp_group().device_group)
    return False, told[0], int(told[1].min())
