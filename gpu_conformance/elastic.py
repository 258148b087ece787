"""Under torchrun this process is one rank of a group that may span nodes: no parent of ours watches it."""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from gpu_conformance import collectives
from gpu_conformance.group import Group, seen_of
from gpu_conformance.work import Seen

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    return all(name in environment for name in NEEDED)


def rank() -> int:
    return int(os.environ["RANK"])


def ranks() -> int:
    return int(os.environ["WORLD_SIZE"])


def serve(group: Group, engine: Any) -> list[Seen]:
    """What every rank saw, on every rank. A rank that fails says so and leaves: torchrun ends the others."""
    doing = ["joining the group"]
    try:
        collectives.join(rank(), ranks(), "env://", timeout_s=group.timeout_s)
        if group.model.device.startswith("cuda"):
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        mine = collectives.drive(group.rank(engine, group.start(engine), rank()), doing.append)
        return [seen_of(json.loads(told)) for told in gathered(json.dumps(asdict(mine)))]
    except Exception as problem:
        kind = "lost the others" if isinstance(problem, collectives.Broken) else "raised"
        print(f"INFRASTRUCTURE rank {rank()} {kind}, last operation: {doing[-1]}: {problem}", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)


def gathered(text: str) -> list[str]:
    """The text of every rank: lengths first, then bytes padded to the longest."""
    mine = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    sizes = collectives.all_gather(torch.tensor([[len(mine)]])).flatten().tolist()
    padded = torch.zeros((1, max(sizes)), dtype=torch.uint8)
    padded[0, : len(mine)] = mine
    rows = collectives.all_gather(padded)
    return [bytes(row[:size].tolist()).decode() for row, size in zip(rows, sizes, strict=True)]
