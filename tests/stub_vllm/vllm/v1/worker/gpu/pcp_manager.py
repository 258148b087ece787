from dataclasses import replace

import torch
from vllm.distributed.parallel_state import get_pcp_group


class PCPManager:
    def __init__(self, pcp_world_size, pcp_rank, device, shard_decode_requests, max_num_reqs, max_num_tokens):
        self.size, self.rank = pcp_world_size, pcp_rank

    def partition_batch(self, input_batch, batch_desc):
        chunks = [self._chunks(input_batch, rank) for rank in range(self.size)]
        rows = [[token for chunk in some for token in chunk] for some in chunks]
        most = max(*map(len, rows), batch_desc.num_tokens if batch_desc and batch_desc.cg_mode else 0)
        self._places = [(rank * most + row, token) for rank, own in enumerate(rows) for row, token in enumerate(own)]
        ends = torch.tensor([0, *map(len, chunks[self.rank])]).cumsum(0)
        last = [own[-1] for own in chunks[self.rank]]
        return replace(
            input_batch,
            num_tokens=len(rows[self.rank]),
            input_ids=self._padded(input_batch.input_ids, rows[self.rank], most),
            positions=self._padded(input_batch.positions, rows[self.rank], most),
            query_start_loc=ends,
            seq_lens=torch.tensor([int(input_batch.positions[token]) + 1 for token in last]),
        )

    def _chunks(self, batch, rank):
        start, some = 0, []
        for length in batch.num_scheduled_tokens.tolist():
            if length < 0:
                raise ValueError("a length is negative")
            size = -(-length // (2 * self.size))
            for chunk in (rank, 2 * self.size - 1 - rank):
                if own := range(start + chunk * size, start + min(length, (chunk + 1) * size)):
                    some.append(own)
            start += length
        return some

    def _padded(self, values, rows, most):
        return torch.cat([values[torch.tensor(rows, dtype=torch.long)], values.new_zeros(most - len(rows))])

    def restore_hidden_states(self, hidden_states):
        gathered = get_pcp_group().all_gather(hidden_states, dim=0)
        return gathered[torch.tensor([row for row, _ in sorted(self._places, key=lambda place: place[1])])]
