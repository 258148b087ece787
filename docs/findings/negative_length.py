"""A negative extend length passes through the interleave sharder.

usage: python negative_length.py DIR      DIR: an unpacked sglang wheel, 0.5.17 to 0.5.23; needs torch
"""

from types import SimpleNamespace

import torch
from load import load, parallel

interleave = load("sglang.srt.layers.cp.interleave")
strategy = interleave.InterleaveCPStrategy(cp_size=2)
for rank in range(2):
    parallel.attn_cp_rank, parallel.attn_cp_size = rank, 2
    metadata = strategy.build_metadata(num_tokens=8, seqs_len=[9, -1], extend_seqs_len=[9, -1])
    rows = strategy.shard_hidden_states(torch.arange(8), SimpleNamespace(attn_cp_metadata=metadata))
    print(f"rank {rank}, lengths [9, -1]: rows {rows.tolist()}, no error")
