"""Tokens are lost where the padding factor is no multiple of 2 x cp.

usage: python padding_factor.py DIR      DIR: an unpacked transformer-engine wheel, 2.20.2; needs torch
"""

import enum
import importlib
from types import SimpleNamespace

import torch
from mocks import PACKAGES, load

PACKAGES.update(("transformer_engine", "transformer_engine_torch"))
constants = importlib.import_module("transformer_engine.pytorch.constants")
constants.CPLoadBalancingStrategy = enum.Enum("CPLoadBalancingStrategy", "DUAL_CHUNK_SWAP NO_LOAD_BALANCE")
engine = load("transformer_engine.pytorch.attention.dot_product_attention.context_parallel")
torch.distributed.get_world_size = lambda group: group.size
torch.distributed.get_rank = lambda group: group.rank

for lengths, factor, size in (([1], 2, 3), ([5, 3], 6, 2)):
    tokens = torch.arange(1, 1 + sum(lengths))
    cumulative = torch.tensor([0, *lengths]).cumsum(0)
    ids, labels, padded = engine.pad_thd_sequences_for_cp(tokens, tokens, cumulative, factor)
    positions = engine.generate_positional_ids_for_cp(cumulative, factor)
    held = []
    for rank in range(size):
        group = SimpleNamespace(size=size, rank=rank)
        mine, _, _ = engine.get_batch_on_this_cp_rank(padded, ids, labels, positions, cp_group=group)
        held.append(mine.tolist())
    print(f"lengths {lengths}, tokens {tokens.tolist()}, factor {factor}, cp {size}: ranks hold {held}, no error")
