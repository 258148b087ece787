"""The same model without ranks, rows or graphs: every sequence alone, from its first token. What a batch must give."""

from dataclasses import dataclass

import torch

from gpu_conformance.model import Model

Tensor = torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Whole:
    """hidden: [tokens, hidden]. kv: [layers, tokens, kv]. logits: [vocabulary], of the last token."""

    hidden: Tensor
    kv: Tensor
    logits: Tensor


def whole(model: Model, tokens: tuple[int, ...]) -> Whole:
    positions = torch.arange(len(tokens), device=model.device)
    hidden, queries, kv = model.embed(torch.tensor(tokens, device=model.device), positions)
    cached = [kv]
    for layer in range(model.shape.layers):
        attended = model.attend(queries, positions, kv)
        if layer + 1 < model.shape.layers:
            hidden, queries, kv = model.next_layer(layer + 1, hidden, attended, positions)
            cached.append(kv)
    hidden = model.last(hidden, attended)
    return Whole(hidden=hidden, kv=torch.stack(cached), logits=model.logits(hidden[-1]))
