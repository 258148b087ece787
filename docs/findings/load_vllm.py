"""What the scripts on vllm share: the enumeration of graph modes and a configuration. No part of cpbcg is used."""

import importlib
from types import SimpleNamespace
from unittest.mock import MagicMock

from mocks import PACKAGES, load

PACKAGES |= {"vllm", "tqdm", "pydantic"}
CUDAGraphMode = importlib.import_module("vllm.config").CUDAGraphMode = load("vllm.config.compilation").CUDAGraphMode
load("vllm.utils.math_utils")
importlib.import_module("vllm").envs.VLLM_LOG_BATCHSIZE_INTERVAL = -1
load("vllm.forward_context")
importlib.import_module("vllm.compilation.breakable_cudagraph").is_breakable_cudagraph_enabled = lambda: False


def config(sizes, max_num_seqs, num_speculative_tokens):
    return MagicMock(
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        compilation_config=MagicMock(
            cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=sizes[-1], compile_sizes=[]
        ),
        speculative_config=None,
        lora_config=None,
        num_speculative_tokens=num_speculative_tokens,
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
    )
