"""Some ranks, their clocks and a long day of scheduler passes: they agree, and nobody waits beyond the bound."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from cpbcg_ref.answers import Verdict
from cpbcg_ref.cases import DelayerConfig, RankReport

LIMIT_MS = 100.0
configs = st.builds(
    DelayerConfig,
    dp_size=st.sampled_from([2, 1, 3, 4]),
    max_delay_passes=st.sampled_from([3, 0, 1, 2, 5, 20]),
    max_running_requests=st.sampled_from([64, 16, 8]),
    max_delay_ms=st.just(LIMIT_MS),
    queue_min_ratio=st.sampled_from([0.5, None, 0.02, 1.0]),
    prefill_max_requests=st.sampled_from([4, None, 1, 128]),
    token_usage_low_watermark=st.sampled_from([None, 0.5]),
)
reports = st.builds(
    RankReport,
    prefillable=st.sampled_from([True, True, False]),
    token_usage=st.sampled_from([0.9, 0.5, 0.4]),
    running_batch=st.sampled_from([8, 0, 1, 7]),
    max_prefill_bs=st.sampled_from([1, 0, 4, 12]),
    waiting_queue_len=st.sampled_from([1, 0, 3, 4, 100]),
)
QUEUE_IS_SHORT = [RankReport(prefillable=True, running_batch=8, max_prefill_bs=4, waiting_queue_len=1)] * 4
apart_ms = st.lists(st.sampled_from([0.0, 0.1, 0.2, 50.0]), min_size=4, max_size=4)  # what each clock is ahead
elapsed_ms = st.sampled_from([0.0, LIMIT_MS, LIMIT_MS - 0.1, LIMIT_MS / 2])


def slots_are_short(config, ranks):
    free = config.max_running_requests - max(rank.running_batch for rank in ranks)
    return free < max(rank.max_prefill_bs for rank in ranks)


def queue_is_short(config, ranks):
    capacity = config.prefill_max_requests or max(rank.max_prefill_bs for rank in ranks)
    target = min(int(max(rank.running_batch for rank in ranks) * (config.queue_min_ratio or 0)), capacity)
    return max(rank.waiting_queue_len for rank in ranks) < target


class NegotiationMachine(RuleBasedStateMachine):
    @initialize(config=configs)
    def start(self, config):
        self.config = config
        self.group = self.engine.start_delayers(config)
        self.now_ms, self.clocks_ms, self.free_pass_used = 1000.0, [0.0] * 4, False
        self.held = [0] * config.dp_size  # passes in a row in which the rank was prefillable and not allowed
        self.seen = QUEUE_IS_SHORT

    @rule(ranks=st.lists(reports, min_size=4, max_size=4), elapsed_ms=elapsed_ms, apart_ms=apart_ms)
    def one_pass(self, ranks, elapsed_ms, apart_ms):
        self.seen = ranks
        self.step(elapsed_ms, apart_ms)

    @rule(times=st.integers(1, 12), elapsed_ms=elapsed_ms, apart_ms=apart_ms)
    def the_same_again(self, times, elapsed_ms, apart_ms):
        for turn in range(times):
            self.step(elapsed_ms, apart_ms[turn % 4 :] + apart_ms[: turn % 4])

    @rule(apart_ms=apart_ms)
    def the_time_limit_passes_while_the_queue_is_short(self, apart_ms):
        self.seen = QUEUE_IS_SHORT
        for elapsed_ms, ahead_ms in ((0.0, [0.0] * 4), (0.0, [0.0] * 4), (LIMIT_MS - 0.1, apart_ms)):
            self.step(elapsed_ms, ahead_ms)

    def step(self, elapsed_ms, apart_ms):
        self.now_ms += elapsed_ms
        self.clocks_ms = [max(was, self.now_ms + by) for was, by in zip(self.clocks_ms, apart_ms, strict=True)]
        pairs = zip(self.seen[: self.config.dp_size], self.clocks_ms, strict=False)
        ranks = [replace(rank, now_ms=clock_ms) for rank, clock_ms in pairs]
        verdicts = self.group.step(tuple(ranks))
        assert all(isinstance(verdict, Verdict) for verdict in verdicts), verdicts
        assert len(set(verdicts)) == 1, f"ranks disagree at {self.now_ms} ms: {ranks} gave {verdicts}"
        self.judge(ranks, verdicts[0])

    def judge(self, ranks, verdict):
        told = f"{ranks} gave {verdict} under {self.config}"
        assert verdict.allow or self.may_be_delayed(ranks), f"unjustified: {told}"
        assert verdict.free_pass_used >= self.free_pass_used, f"the free pass came back: {told}"
        self.free_pass_used = verdict.free_pass_used
        for rank, report in enumerate(ranks):
            self.held[rank] = self.held[rank] + 1 if report.prefillable and not verdict.allow else 0
        assert max(self.held) < max(1, self.config.max_delay_passes), f"held for {self.held} passes: {told}"

    def may_be_delayed(self, ranks):
        ready = [rank for rank in ranks if rank.prefillable]
        watermark = self.config.token_usage_low_watermark
        if not ready or any(watermark is not None and rank.token_usage < watermark for rank in ready):
            return False
        mixed = len(ready) < len(ranks)
        return mixed or slots_are_short(self.config, ranks) or queue_is_short(self.config, ranks)


def test_ranks_agree_hold_nobody_beyond_the_bound_and_delay_only_for_a_reason(explore):
    explore(NegotiationMachine, "negotiation", steps=25)
