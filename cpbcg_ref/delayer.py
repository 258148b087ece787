"""Prefill now or wait for a fuller batch: how the data-parallel (DP) ranks agree, section 4 of the specification.

rank r:  make_report(state, config, now_ms=its clock, ...)    one row, its timer read before the gather
all:     gather the rows into one table                       `dp_size` rows; without DP attention only its own
rank r:  negotiate(table, state, config, now_ms=its clock)    pure; the clock only stamps the next state
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from zlib import crc32

from cpbcg_ref.checks import check_counts, check_fingerprints, check_flags, check_number, check_whole, refuse


@dataclass(frozen=True, kw_only=True)
class DelayerConfig:
    """Equal on all ranks. None: not configured. `max_delay_passes` and `max_delay_ms` are two bounds on one wait.

    policy "seed" is as specified. "hardened" keeps a request's budget over passes in which nobody is prefillable, holds
    nothing while nobody decodes, caps the target by the free slots, compares each rank's running requests with its own
    batch size, and counts a rank with a chunk in progress as prefillable. Its rows have the same fields.
    """

    dp_size: int
    max_delay_passes: int
    max_running_requests: int
    max_delay_ms: float = 5000.0
    queue_min_ratio: float | None = None
    prefill_max_requests: int | None = None
    token_usage_low_watermark: float | None = None
    enable_dp_attention: bool = True
    policy: str = "seed"

    def __post_init__(self) -> None:
        check_whole("dp_size", self.dp_size, least=1)
        check_whole("max_running_requests", self.max_running_requests, least=1)
        check_counts(max_delay_passes=self.max_delay_passes)
        check_number("max_delay_ms", self.max_delay_ms)
        if self.prefill_max_requests is not None:
            check_whole("prefill_max_requests", self.prefill_max_requests, least=1)
        for name in ("queue_min_ratio", "token_usage_low_watermark"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        check_flags(enable_dp_attention=self.enable_dp_attention)
        if self.policy not in ("seed", "hardened"):
            refuse("policy", self.policy, "choose seed or hardened")

    @property
    def running_limit(self) -> int:
        return self.max_running_requests if self.enable_dp_attention else -(-self.max_running_requests // self.dp_size)

    @property
    def fingerprint(self) -> int:
        """Travels in every row: ranks that are configured differently fail loudly instead of diverging."""
        return crc32(repr([float(v) if type(v) is int else v for v in astuple(self)]).encode())


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """One row of the gathered table. The counts are true also of a rank that is not prefillable."""

    prefillable: bool
    below_watermark: bool
    timer_expired: bool
    fingerprint: int
    running_batch: int = 0
    max_prefill_bs: int = 0
    waiting_queue_len: int = 0

    def __post_init__(self) -> None:
        check_flags(prefillable=self.prefillable, below_watermark=self.below_watermark)
        check_flags(timer_expired=self.timer_expired)
        check_counts(running_batch=self.running_batch, max_prefill_bs=self.max_prefill_bs)
        check_counts(waiting_queue_len=self.waiting_queue_len)


@dataclass(frozen=True, kw_only=True)
class DelayerState:
    """What a rank carries to its next pass; equal on all ranks but for the start, on the rank's own clock."""

    delayed_passes: int = 0
    started_ms: float | None = None
    free_pass_used: bool = False

    def __post_init__(self) -> None:
        assert self.episode_open == (self.started_ms is not None), f"{self}: an episode opens with its first delay"

    @property
    def episode_open(self) -> bool:
        return self.delayed_passes > 0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One pass, and the state for the next. `wait_passes`: delays of the episode that this pass released."""

    allow: bool
    reason: str
    state: DelayerState
    wait_passes: int = 0


def make_report(
    state: DelayerState,
    config: DelayerConfig,
    *,
    now_ms: float,
    prefillable: bool,
    token_usage: float,
    chunk_in_progress: bool = False,
    **requests: int,
) -> RankReport:
    """This rank's row. `token_usage`: used share of KV tokens. `requests`: the counts that `RankReport` lists."""
    check_number("now_ms", now_ms)
    check_number("token_usage", token_usage)
    check_flags(prefillable=prefillable, chunk_in_progress=chunk_in_progress)
    ready = prefillable or (config.policy == "hardened" and chunk_in_progress)
    watermark = config.token_usage_low_watermark
    return RankReport(
        prefillable=ready,
        below_watermark=ready and watermark is not None and token_usage < watermark,
        timer_expired=state.started_ms is not None and now_ms - state.started_ms >= config.max_delay_ms,
        fingerprint=config.fingerprint,
        **requests,
    )


def negotiate(table: Sequence[RankReport], state: DelayerState, config: DelayerConfig, *, now_ms: float) -> Decision:
    """This pass's decision. Ranks with equal states and the same table decide alike, whatever their clocks say.

    >>> config = DelayerConfig(dp_size=1, max_delay_passes=3, max_running_requests=8)
    >>> state = DelayerState(delayed_passes=2, started_ms=0.0, free_pass_used=True)
    >>> full = {"prefillable": True, "token_usage": 0.9, "running_batch": 8, "max_prefill_bs": 2}
    >>> row = make_report(state, config, now_ms=9.0, **full)
    >>> decision = negotiate([row], state, config, now_ms=9.0)
    >>> decision.reason, decision.wait_passes
    ('wait_timeout', 2)
    """
    check_number("now_ms", now_ms)
    rows = config.dp_size if config.enable_dp_attention else 1
    check_fingerprints([row.fingerprint for row in table], ours=config.fingerprint, rows=rows)
    hardened, freely = config.policy == "hardened", "wait_success" if state.episode_open else "no_wait"
    if not any(row.prefillable for row in table):
        return Decision(allow=True, reason="", state=state) if hardened else release("", state)
    if any(row.below_watermark for row in table):
        return release("token_watermark", state)
    if hardened and not any(row.running_batch for row in table):
        return release(freely, state)
    if all(row.prefillable for row in table):
        if not slot_condition(table, config) and not queue_condition(table, config):
            return release(freely, state)
        if not state.free_pass_used:  # skip_first_delayer: the first time ever is let through
            return release(freely, replace(state, free_pass_used=True))
    if state.delayed_passes >= config.max_delay_passes - 1:
        return release("wait_timeout", state)
    started_ms = now_ms if state.started_ms is None else state.started_ms
    delayed = replace(state, delayed_passes=state.delayed_passes + 1, started_ms=started_ms)
    return Decision(allow=False, reason="delay", state=delayed)


def release(reason: str, state: DelayerState) -> Decision:
    """Allow, and close the episode."""
    closed = DelayerState(free_pass_used=state.free_pass_used)
    return Decision(allow=True, reason=reason, state=closed, wait_passes=state.delayed_passes)


def slot_condition(table: Sequence[RankReport], config: DelayerConfig) -> bool:
    """Would the usual prefill batch find too few free slots?"""
    hardened, limit = config.policy == "hardened", config.running_limit
    pairs = [(one, other) for one in table for other in ([one] if hardened else table)]
    return any(limit - one.running_batch < other.max_prefill_bs for one, other in pairs)


def queue_condition(table: Sequence[RankReport], config: DelayerConfig) -> bool:
    """Is the queue still short of its target, with time left on every rank's timer?"""
    running = max(row.running_batch for row in table)
    if config.queue_min_ratio is None:
        return False
    capacity = config.prefill_max_requests or max(row.max_prefill_bs for row in table)
    target = min(int(running * config.queue_min_ratio), capacity)
    if config.policy == "hardened":
        target = min(target, config.running_limit - running)
    waiting = max(row.waiting_queue_len for row in table)
    return waiting < target and not any(row.timer_expired for row in table)  # a target of 0 holds nothing
