"""A bucket just above a multiple of the context length: its last synthetic request is too short for the zigzag.

usage: python short_last_request.py DIR      DIR: an unpacked sglang wheel, 0.5.17 to 0.5.23; needs torch
"""

import re

from load import base, batch
from mocks import ROOT, load

runner = ROOT.joinpath("sglang/srt/model_executor/runner/prefill_cuda_graph_runner.py").read_text()
split = re.search(r"capture_seq_lens = (\[.*?\])", runner, re.S)[1]  # the release's own expression
lengths = eval(split, {"context_length": 4095, "num_tokens": 4096})
print("bucket 4096, --context-length 4095: capture requests", lengths)

base._STRATEGY = load("sglang.srt.layers.cp.zigzag").ZigzagCPStrategy(cp_size=4)
utils = load("sglang.srt.layers.cp.utils")
for requests in ([2048, 2048], lengths):
    try:
        utils.prepare_cp_forward(batch(sum(requests), requests))
        print(requests, "is sharded")
    except AssertionError:
        print(requests, "raises AssertionError in prepare_cp_forward: the server does not start")
