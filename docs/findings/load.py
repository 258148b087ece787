"""SGLang's leaf modules with what they ask of a server (not meant to run; the scripts beside it use it)."""

import importlib
from types import SimpleNamespace

from mocks import PACKAGES, load

PACKAGES.add("sglang")
# What a rank knows of its group.
parallel = SimpleNamespace(attn_cp_rank=0, attn_cp_size=4, enable_cp_tp_group_sharing=True)
importlib.import_module("sglang.srt.runtime_context").get_parallel = lambda: parallel
base = load("sglang.srt.layers.cp.base")
load("sglang.srt.layers.cp.padding")


def batch(num_tokens, extend_seq_lens_cpu):
    return SimpleNamespace(
        input_ids=range(num_tokens),
        extend_seq_lens_cpu=extend_seq_lens_cpu,
        seq_lens_cpu=extend_seq_lens_cpu,
        forward_mode=SimpleNamespace(is_context_parallel_extend=lambda: True),
        attn_cp_metadata=None,
    )
