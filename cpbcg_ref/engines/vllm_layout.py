"""vLLM's prefill context parallelism: `PCPManager`, asked as every virtual rank with a batch of prefills.

Supplied are the batch, the group and copies to a device; the kernels that an older release writes positions with are
stand-ins, so its positions and keys cannot be asked.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from cpbcg_ref.asking import global_positions
from cpbcg_ref.cases import Batch
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.supplied import Bag, always, ints

GPU = "vllm.v1.worker.gpu."
MANAGER, BATCH = GPU + "pcp_manager", GPU + "input_batch"
KERNELS = ("prepare_pos_seq_lens", "combine_sampled_and_draft_tokens")
LACKS = dict.fromkeys(("positions", "keys"), f"this release writes positions with a Triton kernel ({KERNELS[0]})")
LACKS |= {"captured-rows": "this release pads to the largest rank, whatever was captured"}


class VLLMLayout:
    """The methods of `layout`, `rows`, `positions`, `gather` and `keys`, see `contract`. root: the folder that contains
    `vllm`. Raises TargetError if the release lacks one of the symbols."""

    def __init__(self, root: Path) -> None:
        tree = Hermetic(root, "vllm", (MANAGER, BATCH, "vllm.config.compilation"))
        self.group: Any = Bag(all_gather=None)
        mode = tree.symbol("vllm.config.compilation", "CUDAGraphMode")
        tree.provide("vllm.config", CUDAGraphMode=mode)
        tree.provide("vllm.distributed.parallel_state", get_pcp_group=lambda: self.group)
        tree.provide("vllm.v1.attention.backends.utils", PAD_SLOT_ID=-1)
        tree.provide("vllm.utils.torch_utils", async_tensor_h2d=on_device)
        tree.provide(GPU + "buffer_utils", async_copy_to_gpu=on_device)
        self.manager, self.batch = tree.symbol(MANAGER, "PCPManager"), tree.symbol(BATCH, "InputBatch")
        self.tells_positions = not hasattr(tree.load(MANAGER), KERNELS[0])
        if not self.tells_positions:  # the other one writes tokens of decodes
            tree.provide(MANAGER, **dict.fromkeys(KERNELS, always(None)))
        self.mode = mode
        states = Bag(last_sampled_tokens=None, prefill_len=Bag(gpu=None), draft_tokens=None)
        self.new = {"shard_decode_requests": False} if self.tells_positions else {"req_states": states}

    def logical_rows(self, batch: Batch, **group: Any) -> list[int]:
        return [local.num_tokens for _, local in self.partitions(batch, **group)]

    def shard(self, batch: Batch, payload: list[int], **group: Any) -> list[list[int]]:
        """`captured_rows`: as many rows as a PIECEWISE graph has."""
        parts = self.partitions(batch, payload=payload, **group)
        return [local.input_ids.tolist() for _, local in parts]

    def shard_positions(self, batch: Batch, positions: list[int], **group: Any) -> list[list[int]]:
        parts = self.partitions(batch, positions=positions, **group)
        return [local.positions.tolist() for _, local in parts]

    def gather(self, batch: Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        self.group.all_gather = lambda own, dim: ints(row for local in rows for row in local)
        parts = self.partitions(batch, **group)
        return [manager.restore_hidden_states(ints(rows[rank])).tolist() for rank, (manager, _) in enumerate(parts)]

    def kv_segments(self, batch: Batch, **group: Any) -> list[list[tuple[int, int]]]:
        """The lengths of the local requests, which are chunks, and what they are told to see."""
        answers = []
        for _, local in self.partitions(batch, positions=global_positions(batch), **group):
            lengths = local.query_start_loc.diff().tolist()
            answers.append(list(zip(lengths, local.seq_lens.tolist(), strict=True)))
        return answers

    def partitions(
        self, batch: Batch, *, cp_size: int, strategy: str, captured_rows: int = 0, **tokens: list[int]
    ) -> list[tuple[Any, Any]]:
        """The manager of every rank, and what it makes of the batch."""
        import torch

        most = {"max_num_reqs": len(batch.lengths), "max_num_tokens": max(1, batch.num_tokens, captured_rows)}
        mode = self.mode.PIECEWISE if captured_rows else self.mode.NONE
        graph = {"batch_desc": Bag(cg_mode=mode, num_tokens=captured_rows)} if self.tells_positions else {}
        ranks = [
            self.manager(pcp_world_size=cp_size, pcp_rank=rank, device=torch.device("cpu"), **self.new, **most)
            for rank in range(cp_size)
        ]
        return [(rank, rank.partition_batch(self.scheduled(batch, **tokens), **graph)) for rank in ranks]

    def scheduled(self, batch: Batch, *, payload: Any = None, positions: Any = None) -> Any:
        """A batch of prefills as the scheduler gives it: every request has all of its prompt in cache and batch."""
        import numpy as np
        import torch

        lengths, prefixes = (np.array(one, dtype=np.int32) for one in (batch.lengths, batch.prefixes))
        starts, requests, blank = np.cumsum([0, *lengths], dtype=np.int32), len(lengths), [0] * batch.num_tokens
        known = {
            "req_ids": list(map(str, range(requests))),
            "num_reqs": requests,
            "num_tokens": batch.num_tokens,
            "num_draft_tokens": 0,
            "idx_mapping_np": np.arange(requests, dtype=np.int32),
            "expanded_local_pos": torch.zeros(requests, dtype=torch.int32),
            "num_scheduled_tokens": lengths,
            "num_computed_tokens_np": prefixes,
            "num_computed_prefill_tokens_np": prefixes,
            "prefill_len_np": lengths + prefixes,
            "is_prefilling_np": np.ones(requests, dtype=bool),
            "has_prefill": True,
            "query_start_loc_np": starts,
            "query_start_loc": torch.from_numpy(starts),
            "seq_lens_cpu_upper_bound": torch.from_numpy(lengths + prefixes),
            "input_ids": torch.tensor(payload or blank, dtype=torch.int32),
            "positions": ints(positions or blank),
        }
        return self.batch(**{field.name: known.get(field.name) for field in fields(self.batch)})


def on_device(data: Any, device: Any = None, out: Any = None) -> Any:
    """What copies an array to the device, which is this one."""
    import torch

    return torch.from_numpy(data) if out is None else out.copy_(torch.from_numpy(data))
