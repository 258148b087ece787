"""Prefill now or wait for a fuller batch: how the data-parallel (DP) ranks agree, section 4 of the specification.

rank r:  make_report(state, config, now_ms=its clock, ...)    one row, its timer read before the gather
all:     gather the rows into one table                       `dp_size` rows; without DP attention only its own
rank r:  negotiate(table, state, config, now_ms=its clock)    pure; the clock only stamps the next state
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import product
from zlib import crc32

from cpbcg_ref.errors import check, refuse

WINDOW = 16  # attempts


@dataclass(frozen=True, kw_only=True)
class DelayerConfig:
    """Equal on all ranks. None: not configured. `max_delay_passes` and `max_delay_ms` are two bounds on one wait.

    policy "seed" is section 4 as written. "hardened" keeps a request's budget when nobody is prefillable, holds
    nothing while nobody decodes, caps the target by the free slots, compares a rank's running requests with its own
    batch size, and counts a rank with a chunk in progress as prefillable.
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
        check(int, least=1, dp_size=self.dp_size, max_running_requests=self.max_running_requests)
        check(int | None, least=1, prefill_max_requests=self.prefill_max_requests)
        check(int, max_delay_passes=self.max_delay_passes)
        check(float, max_delay_ms=self.max_delay_ms)
        check(float | None, queue_min_ratio=self.queue_min_ratio)
        check(float | None, token_usage_low_watermark=self.token_usage_low_watermark)
        check(bool, enable_dp_attention=self.enable_dp_attention)
        if self.policy not in ("seed", "hardened"):
            refuse("policy", self.policy, "choose seed or hardened")

    @property
    def running_limit(self) -> int:
        return self.max_running_requests if self.enable_dp_attention else -(-self.max_running_requests // self.dp_size)

    @cached_property
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
        check(bool, prefillable=self.prefillable, below_watermark=self.below_watermark)
        check(bool, timer_expired=self.timer_expired)
        check(int, fingerprint=self.fingerprint, running_batch=self.running_batch)
        check(int, max_prefill_bs=self.max_prefill_bs, waiting_queue_len=self.waiting_queue_len)


@dataclass(frozen=True, kw_only=True)
class DelayerState:
    """What a rank carries to its next pass; equal on all ranks but for the start, on the rank's own clock."""

    delayed_passes: int = 0
    started_ms: float | None = None
    free_pass_used: bool = False

    def __post_init__(self) -> None:
        assert (self.started_ms is None) == (not self.delayed_passes), f"{self}: an episode opens with its first delay"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One pass, and the state for the next. `wait_passes`: delays of the episode that this pass released."""

    allow: bool
    reason: str
    state: DelayerState
    wait_passes: int = 0


@dataclass(frozen=True, kw_only=True)
class RecentAttempts:
    """Requests in each of the last 16 prefill attempts that were not empty. Other passes do not age them.

    >>> RecentAttempts().after(admitted=20).after().after(queue=5, free_slots=0).sizes
    (20, 1)
    """

    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.sizes) <= WINDOW, f"{self}: at most {WINDOW}"
        assert min(self.sizes, default=1) >= 1, f"{self}: none is empty"

    @property
    def max_prefill_bs(self) -> int:
        return max(self.sizes, default=0)

    def after(self, *, admitted: int = 0, queue: int = 0, free_slots: int = 0) -> "RecentAttempts":
        """After a pass that ran `admitted` requests, or at 0 refused `queue` of them (0 too: nothing was attempted)."""
        check(int, admitted=admitted, queue=queue, free_slots=free_slots)
        size = admitted or (max(1, min(queue, free_slots)) if queue else 0)
        return RecentAttempts(sizes=(*self.sizes, size)[-WINDOW:]) if size else self


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
    check(float, now_ms=now_ms, token_usage=token_usage)
    check(bool, prefillable=prefillable, chunk_in_progress=chunk_in_progress)
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
    >>> row = make_report(DelayerState(), config, now_ms=9.0, prefillable=True, token_usage=0.9)
    >>> negotiate([row], DelayerState(), config, now_ms=9.0).reason
    'no_wait'
    """
    check(float, now_ms=now_ms)
    rows = config.dp_size if config.enable_dp_attention else 1
    if len(table) != rows:
        refuse("rows in the table", len(table), f"gather {rows}: dp_size, or 1 without DP attention")
    for rank, theirs in enumerate(row.fingerprint for row in table):
        if theirs != config.fingerprint:
            refuse(f"fingerprint {rank}", theirs, f"here it is {config.fingerprint}; configure all ranks alike")
    hardened, freely = config.policy == "hardened", "wait_success" if state.delayed_passes else "no_wait"
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
    pairs = product(table, table) if config.policy == "seed" else zip(table, table, strict=True)
    return any(config.running_limit - one.running_batch < other.max_prefill_bs for one, other in pairs)


def queue_condition(table: Sequence[RankReport], config: DelayerConfig) -> bool:
    """Is the queue still short of its target, with time left on every rank's timer? A target of 0 holds nothing."""
    if config.queue_min_ratio is None or any(row.timer_expired for row in table):
        return False
    running = max(row.running_batch for row in table)
    caps = [config.prefill_max_requests or max(row.max_prefill_bs for row in table)]
    if config.policy == "hardened":
        caps.append(config.running_limit - running)
    target = int(min(running * config.queue_min_ratio, *caps))
    return max(row.waiting_queue_len for row in table) < target
