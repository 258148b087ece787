"""A correct engine in the most naive way, one token at a time, for tests to break. Shares no code with the library."""

from cpbcg_ref.answers import Captured, Loaded
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY


class Toy:
    name, version = "toy", "1"
    contract = Contract(
        strategies=("zigzag", "interleave"), graph_strategies=("zigzag", "interleave"), min_replay_bucket=True
    )
    roots = (__file__,)

    def owners(self, lengths, cp_size, strategy):
        """Per rank the tokens of the batch, in row order."""
        if strategy == "interleave":
            return [[token for token in range(sum(lengths)) if token % cp_size == rank] for rank in range(cp_size)]
        early, late = [[] for _ in range(cp_size)], [[] for _ in range(cp_size)]
        token = 0
        for length in lengths:
            for block in range(2 * cp_size):
                for _ in range(self.block(length, block, cp_size)):
                    side, rank = (early, block) if block < cp_size else (late, 2 * cp_size - 1 - block)
                    side[rank].append(token)
                    token += 1
        return [early[rank] + late[rank] for rank in range(cp_size)]

    def block(self, length, block, cp_size):
        return len([token for token in range(length) if token % (2 * cp_size) == block])

    def check(self, lengths, cp_size, strategy):
        if strategy == "zigzag" and any(length < 2 * cp_size for length in lengths):
            raise ValueError("a request is too short")
        if any(length < 0 for length in lengths):
            raise ValueError("a length is negative")

    def rows(self, lengths, cp_size, strategy):
        most = max(len(tokens) for tokens in self.owners(lengths, cp_size, strategy))
        unit = 1 if cp_size == 1 else cp_size if strategy == "interleave" else 2 * cp_size
        while most % unit:
            most += 1
        return most

    def is_cp_active(self, batch, *, cp_size, strategy, cp_rank):
        if cp_size == 1 or not batch.lengths or not batch.lengths_known or min(batch.lengths) < 0:
            return False
        return sum(batch.lengths) >= cp_size if strategy == "interleave" else min(batch.lengths) >= 2 * cp_size

    def logical_rows(self, batch, *, cp_size, strategy):
        return [len(tokens) for tokens in self.owners(batch.lengths, cp_size, strategy)]

    def shard(self, batch, payload, *, cp_size, strategy, captured_rows=None):
        self.check(batch.lengths, cp_size, strategy)
        rows = captured_rows or self.rows(batch.lengths, cp_size, strategy)
        owners = self.owners(batch.lengths, cp_size, strategy)
        return [[payload[token] for token in tokens] + [0] * (rows - len(tokens)) for tokens in owners]

    def shard_positions(self, batch, positions, **how):
        return self.shard(batch, positions, **how)

    def shard_lengths(self, batch, payload, cumulative, *, cp_size, strategy):
        return [cumulative] * cp_size

    def gather(self, batch, rows, *, cp_size, strategy, captured_rows=None):
        whole = [0] * sum(batch.lengths)
        for rank, tokens in enumerate(self.owners(batch.lengths, cp_size, strategy)):
            for row, token in enumerate(tokens):
                whole[token] = rows[rank][row]
        return [whole] * cp_size

    def kv_segments(self, batch, *, cp_size, strategy):
        seen = [
            prefix + i + 1 for length, prefix in zip(batch.lengths, batch.prefixes, strict=True) for i in range(length)
        ]
        return [[(1, seen[token]) for token in tokens] for tokens in self.owners(batch.lengths, cp_size, strategy)]

    def required_local_tokens(self, lengths, *, cp_size, strategy, cp_rank):
        if lengths and min(lengths) < 0:
            raise ValueError("a length is negative")
        return self.rows(lengths, cp_size, strategy) if lengths else None

    def select_replay_bucket(self, **asked):
        for bucket in sorted(asked["capture_num_tokens"]):
            if bucket >= asked["num_tokens"] and self.allowed(bucket, **asked):
                return bucket
        return None

    def allowed(self, bucket, *, num_tokens, required_local_tokens, bucket_local_tokens, max_padding_factor, **asked):
        rows = bucket_local_tokens.get(bucket)
        if rows is None or rows < required_local_tokens:
            return False
        return bucket <= num_tokens * max_padding_factor or bucket <= asked["min_replay_bucket"]

    def start(self, server):
        return ToyServer(self, server)


class ToyServer:
    def __init__(self, toy, server):
        self.toy, self.server = toy, server
        self.requests = {}
        for bucket in sorted(set(server.capture_num_tokens)):
            split = self.split(bucket)
            if split:
                self.requests[bucket] = split
        if not self.requests:
            raise ValueError("no bucket can be captured")

    def split(self, bucket):
        """The first number of equal requests that is legal, by trying all."""
        short = 2 * self.server.cp_size if self.server.strategy == "zigzag" else 1
        for many in range(1, bucket + 1):
            lengths = [bucket // many + (1 if i < bucket % many else 0) for i in range(many)]
            fits = max(lengths) <= self.server.context_length and min(lengths) >= short
            if fits and bucket >= self.server.cp_size:
                return tuple(lengths)
        return None

    def rows(self, lengths):
        return self.toy.rows(lengths, self.server.cp_size, self.server.strategy)

    def table(self, cp_rank):
        return {bucket: self.rows(lengths) for bucket, lengths in self.requests.items()}

    def captured(self, cp_rank):
        table = self.table(cp_rank)
        return Captured(
            requests=tuple(self.requests.items()),
            bucket_local_tokens=tuple(table.items()),
            capture_num_tokens=tuple(self.requests),
        )

    def is_cp_active(self, batch, cp_rank):
        how = {"cp_size": self.server.cp_size, "strategy": self.server.strategy}
        return self.toy.is_cp_active(batch, cp_rank=cp_rank, **how)

    def select(self, batch, cp_rank):
        if not batch.lengths or not batch.lengths_known:
            return None
        if self.server.cp_size > 1 and not self.is_cp_active(batch, cp_rank):
            return None
        return self.toy.select_replay_bucket(
            num_tokens=batch.num_tokens,
            required_local_tokens=self.rows(batch.lengths),
            capture_num_tokens=list(self.requests),
            bucket_local_tokens=self.table(cp_rank),
            max_padding_factor=self.server.max_padding_factor,
            min_replay_bucket=self.server.min_replay_bucket,
        )

    def can_run_graph(self, batch, cp_rank):
        return self.select(batch, cp_rank) is not None

    def load_batch(self, batch, cp_rank):
        bucket = self.select(batch, cp_rank)
        rows, live = self.table(cp_rank)[bucket], self.rows(batch.lengths)
        if live > rows:
            raise RuntimeError(f"batch needs {live} rows, bucket {bucket} has {rows}")
        return Loaded(bucket=bucket, captured_rows=rows, live_rows=live)


def judged(engine, id, case, part=0):
    """The sentence of one part of an invariant about this engine, None if it holds."""
    one = REGISTRY[id].parts[part]
    return one.check(case, FAMILIES[one.family].ask(engine, case), engine.contract)
