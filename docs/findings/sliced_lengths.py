"""Cumulative lengths in a batch are sliced as if they were tokens.

usage: python sliced_lengths.py DIR      DIR: an unpacked megatron-core wheel, 0.16.1; needs torch, numpy, packaging
"""

import sys

import torch

sys.path.insert(0, sys.argv[1])
from megatron.core import parallel_state, utils

parallel_state.get_context_parallel_world_size = lambda: 2
for rank in range(2):
    parallel_state.get_context_parallel_rank = lambda rank=rank: rank
    batch = {"tokens": torch.arange(8).view(1, 8), "cu_seqlens": torch.tensor([[0, 4, 8, 8]])}
    mine = {key: value.tolist() for key, value in utils.get_batch_on_this_cp_rank(batch).items()}
    print(f"rank {rank} of 2: tokens {mine['tokens'][0]}, cu_seqlens {mine['cu_seqlens'][0]}, no error")
