"""Capture once, then offer batches in any order: each is decided as if it were the only one."""

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from cpbcg_ref.answers import Loaded, Raised
from cpbcg_ref.asking import answered, ask_batch, each_rank
from cpbcg_ref.oracles.buckets import fitting, fitting_by_tokens
from cpbcg_ref.oracles.tokens import live_rows, shardable
from cpbcg_ref.strategies import batches, servers


def right_bucket(server, batch, captured, contract):
    """The first captured bucket that can run the batch, by looking at all of them; None for eager."""
    rule = {"max_padding_factor": server.max_padding_factor, "min_replay_bucket": server.min_replay_bucket}
    layout = {"cp_size": server.cp_size, "strategy": server.strategy}
    if not batch.lengths_known or not batch.lengths:
        return None
    if server.cp_size == 1:
        return next(iter(fitting_by_tokens(batch.num_tokens, captured.capture_num_tokens, **rule)), None)
    if not shardable(batch.lengths, min_length=contract.min_length, divides=contract.divides, **layout):
        return None
    rows = max(live_rows(batch.lengths, *layout.values(), contract.blocks))
    found = fitting(
        num_tokens=batch.num_tokens,
        required_local_tokens=contract.aligned(rows, **layout),
        capture_num_tokens=captured.capture_num_tokens,
        bucket_local_tokens=dict(captured.bucket_local_tokens),
        **rule,
    )
    return found[0] if found else None


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
