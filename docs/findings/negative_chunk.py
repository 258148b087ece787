"""A negative number of scheduled tokens is left out of the rows, and another request's token has two owners.

usage: python negative_chunk.py DIR      DIR: an unpacked vllm wheel, 0.27.1 or 0.33.0; needs torch and numpy
"""

import importlib

import numpy as np
from load_vllm import load

importlib.import_module("vllm.v1.attention.backends.utils").PAD_SLOT_ID = -1
PCPManager = load("vllm.v1.worker.gpu.pcp_manager").PCPManager
lengths = np.array([1, -1, 2])
starts = np.cumsum([0, *lengths])
manager = PCPManager(2, 0, "cpu", False)
ranks, _ = manager._build_batch_layout(lengths, np.zeros(3, int), np.ones(3, bool), starts)
for rank, segments in enumerate(ranks):
    rows = [token for one in segments for token in range(one.global_batch_slice.start, one.global_batch_slice.stop)]
    print(f"rank {rank} of 2, lengths {lengths.tolist()}: tokens {rows}, no error")
