"""Tokens are lost where the bucket of a packed batch is no multiple of 2 x cp.

usage: python length_bucket.py DIR      DIR: an unpacked verl wheel, 0.9.1; needs torch
"""

import importlib
import logging
from types import SimpleNamespace

import torch
from mocks import PACKAGES, load

PACKAGES.update(("verl", "megatron"))
mpu = importlib.import_module("megatron.core.parallel_state")
importlib.import_module("megatron.core").parallel_state = mpu
importlib.import_module("megatron.core.packed_seq_params").PackedSeqParams = SimpleNamespace
importlib.import_module("verl.utils.device").is_npu_available = False
logging.Logger.warning_once = logging.Logger.debug  # transformers adds it
util = load("verl.models.mcore.util")
mpu.get_tensor_model_parallel_world_size = lambda: 1

for length, size, bucket in ((4, 2, 6), (992, 8, 1000)):
    tokens = torch.arange(1, length + 1)
    packed, held = torch.nested.as_nested_tensor([tokens], layout=torch.jagged), []
    mpu.get_context_parallel_world_size = lambda size=size: size
    for rank in range(size):
        mpu.get_context_parallel_rank = lambda rank=rank: rank
        rows, _, _ = util.preprocess_thd_engine(packed, pad_to_length_bucket=bucket)
        held += rows[0].tolist()
    lost = [token for token in tokens.tolist() if token not in held]
    print(f"one sequence of {length} tokens, cp {size}, bucket {bucket}: no rank holds tokens {lost}, no error")
