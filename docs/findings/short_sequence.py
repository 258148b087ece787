"""A sequence that is shorter than the CP group.

usage: python short_sequence.py DIR      DIR: an unpacked verl wheel, 0.7.0 (raises) or 0.9.1; needs torch
"""

import importlib
from types import SimpleNamespace

import torch
from mocks import PACKAGES, load

PACKAGES.update(("verl", "megatron"))
mpu = importlib.import_module("megatron.core.parallel_state")
importlib.import_module("megatron.core").parallel_state = mpu
importlib.import_module("megatron.core.packed_seq_params").PackedSeqParams = SimpleNamespace
mpu.get_tensor_model_parallel_world_size = lambda: 1
mpu.get_context_parallel_world_size = lambda: 2
util = load("verl.models.mcore.util")
for rank in range(2):
    mpu.get_context_parallel_rank = lambda rank=rank: rank
    try:
        rows, _ = util.preprocess_packed_seqs(torch.tensor([[7]]), torch.tensor([[True]]))
        print(f"rank {rank} of 2, one sequence of 1 token: rows {rows.tolist()}")
    except RuntimeError as error:
        print(f"rank {rank} of 2, one sequence of 1 token: {error}")
