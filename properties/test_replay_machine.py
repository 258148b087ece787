"""Capture once, then offer batches in any order: each is decided as if it were the only one."""

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from cpbcg_ref.answers import Loaded, Raised
from cpbcg_ref.asking import answered, ask_batch, each_rank
from cpbcg_ref.oracles.tokens import live_rows, shardable
from cpbcg_ref.strategies import batches, servers


def right_bucket(server, batch, captured, contract):
    """The first captured bucket that can run the batch, by looking at one after the other; None for eager."""
    needed = rows_needed(server, batch, contract) if batch.lengths_known and batch.lengths else None
    rows, most = dict(captured.bucket_local_tokens), server.max_padding_factor * batch.num_tokens
    for bucket in sorted(captured.capture_num_tokens):
        holds = needed is not None and bucket >= batch.num_tokens and (not needed or rows.get(bucket, 0) >= needed)
        if holds and (bucket <= most or bucket <= server.min_replay_bucket):
            return bucket
    return None


def rows_needed(server, batch, contract):
    """Padded rows of the largest rank, 0 for a server without CP, None for a batch or a layout without graphs."""
    layout = {"cp_size": server.cp_size, "strategy": server.strategy}
    if server.cp_size == 1:
        return 0
    graphs = server.strategy in contract.graph_strategies
    if not graphs or not shardable(batch.lengths, min_length=contract.min_length, divides=contract.divides, **layout):
        return None
    return contract.aligned(max(live_rows(batch.lengths, *layout.values(), contract.blocks)), **layout)


class ReplayMachine(RuleBasedStateMachine):
    offered = Bundle("offered")

    @initialize(data=st.data())
    def capture(self, data):
        self.server = data.draw(servers(self.engine.contract), label="server")
        self.started = answered(self.engine, self.engine.start, self.server)
        if isinstance(self.started, Raised):
            reject()  # a ladder that cannot be captured is judged by capture.legal
        self.captured = self.ask_captured()

    @rule(target=offered, data=st.data())
    def offer(self, data):
        batch = data.draw(batches(self.server), label="batch")
        self.judge(batch)
        return batch

    @rule(batch=offered)
    def offer_again(self, batch):
        self.judge(batch)

    @invariant()
    def the_captured_graphs_stay_as_they_are(self):
        assert self.ask_captured() == self.captured

    def ask_captured(self):
        return each_rank(self.engine, self.server.cp_size, self.started.captured)

    def judge(self, batch):
        seen = ask_batch(self.engine, self.started, batch, self.server.cp_size)
        expected = right_bucket(self.server, batch, self.captured[0], self.engine.contract)
        if self.server.cp_size == 1 and not batch.lengths_known:
            return  # one rank needs no lengths: an engine may go by the tokens or run eager
        assert set(seen.admitted) == {expected is not None}, f"{batch} on {self.server}: right is {expected}, {seen}"
        for loaded in seen.loaded if expected else ():
            assert isinstance(loaded, Loaded), f"{batch} was admitted and not replayed: {loaded}"
            assert loaded.bucket == expected, f"{batch} on {self.server}: right is {expected}, {loaded}"
            assert (loaded.live_rows or 0) <= (loaded.captured_rows or loaded.bucket), f"{batch} overflows: {loaded}"


def test_any_batch_after_any_others_gets_the_smallest_bucket_that_holds_it_on_every_rank(explore):
    explore(ReplayMachine, "replay", steps=15)
