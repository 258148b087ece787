"""The questions put to an engine: small frozen values, one kind per family of invariants.

A case holds plain ints, strings and tuples only, so that it prints as the Python that rebuilds it, travels as JSON
and can be compared. A case says what is asked; what an engine answered is in `cpbcg_ref.answers`.
A strategy is "zigzag" or "interleave".
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One prefill batch: extend tokens per request, cached prefix tokens per request, in batch order.

    `prefixes` is as long as `lengths`. `lengths_known=False` models a caller that did not pass the extend lengths: the
    engine is told only the number of tokens; the oracle still knows the truth.
    """

    lengths: tuple[int, ...]
    prefixes: tuple[int, ...]
    lengths_known: bool = True

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True, kw_only=True)
class Server:
    """What a deployment configures before capture: CP group, ladder of buckets (tokens), longest request (tokens)."""

    cp_size: int
    capture_num_tokens: tuple[int, ...]
    context_length: int
    strategy: str = "zigzag"
    max_padding_factor: int = 2
    min_replay_bucket: int = 0


@dataclass(frozen=True, kw_only=True)
class LayoutCase:
    """Shard one active batch on `cp_size` ranks; `spare_rows` more rows were captured than the batch needs."""

    cp_size: int
    batch: Batch
    strategy: str = "zigzag"
    spare_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class BadLayoutCase:
    """A batch that the strategy cannot shard (negative, empty or too short lengths), pushed into the sharder itself.

    `padding_factor`: what the caller has each length, or all together, padded to a multiple of, where an engine leaves
    that to the caller (0: what the engine's layout takes).
    """

    cp_size: int
    lengths: tuple[int, ...]
    strategy: str = "zigzag"
    padding_factor: int = 0


@dataclass(frozen=True, kw_only=True)
class CaptureCase:
    """Start a server with this ladder; some buckets may have no legal split."""

    server: Server


@dataclass(frozen=True, kw_only=True)
class SelectCase:
    """One call of the selector. `bucket_local_tokens` pairs buckets with captured rows; a bucket may be missing."""

    num_tokens: int
    required_local_tokens: int
    capture_num_tokens: tuple[int, ...]
    bucket_local_tokens: tuple[tuple[int, int], ...]
    max_padding_factor: int = 2
    min_replay_bucket: int = 0


@dataclass(frozen=True, kw_only=True)
class SelectPairCase:
    """The same selection twice: `more` differs from `base` only in more capacity, or in a bucket that cannot matter."""

    base: SelectCase
    more: SelectCase


@dataclass(frozen=True, kw_only=True)
class ReplayCase:
    """Capture `server`'s ladder, then offer the batches in order, on every rank of the CP group."""

    server: Server
    batches: tuple[Batch, ...]


@dataclass(frozen=True, kw_only=True)
class DelayerConfig:
    """Configuration of the prefill delayer, equal on all ranks. `None` means not configured."""

    dp_size: int
    max_delay_passes: int
    max_running_requests: int
    max_delay_ms: float = 5000.0
    queue_min_ratio: float | None = None
    prefill_max_requests: int | None = None
    token_usage_low_watermark: float | None = None
    enable_dp_attention: bool = True


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one DP rank knows at one scheduler pass; `now_ms` is its own clock."""

    prefillable: bool
    token_usage: float = 1.0
    running_batch: int = 0
    max_prefill_bs: int = 0
    waiting_queue_len: int = 0
    now_ms: float = 0.0


Pass = tuple[RankReport, ...]  # one report per rank


@dataclass(frozen=True, kw_only=True)
class PassesCase:
    """A sequence of scheduler passes of one engine that starts fresh (no episode, free pass not yet used)."""

    config: DelayerConfig
    passes: tuple[Pass, ...]


@dataclass(frozen=True, kw_only=True)
class LastPassCase:
    """Two runs with the same history: one ends with pass `last`, the other with pass `other_last`."""

    config: DelayerConfig
    history: tuple[Pass, ...]
    last: Pass
    other_last: Pass


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One scheduler pass as the recent-attempt window sees it.

    `admitted` > 0: a batch of that many requests ran. `admitted` == 0 with `queue` > 0: an attempt was rejected while
    `queue` requests waited and `free_slots` slots were free. Both 0: an idle or decode-only pass.
    """

    admitted: int = 0
    queue: int = 0
    free_slots: int = 0


@dataclass(frozen=True, kw_only=True)
class AttemptsCase:
    """A sequence of scheduler passes of one rank, from a fresh start."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True)
class VotesCase:
    """One pass in which some ranks go on with a chunk of a long prompt; `waiting` requests are new on each rank."""

    mid_chunk: tuple[bool, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one rank runs in a step: decodes, each of as many tokens as the case says, and prefills, by their tokens."""

    decodes: int = 0
    prefills: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DispatchCase:
    """One step on the ranks of a group that go in step: which captured graph does each of them replay.

    setup: the way in which the dispatcher is set up, a key of the contract's `dispatchers`. max_requests: most requests
    on a rank. tokens_per_decode: 1, and 1 more for each speculative token. allowed: the modes that the caller would
    have beside eager, none of them for all; excluded: those that it would not.
    """

    setup: str
    capture_num_tokens: tuple[int, ...]
    max_requests: int
    ranks: tuple[Step, ...]
    tokens_per_decode: int = 1
    allowed: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What one real server is configured with; pins the generated cases. `None` leaves that side free."""

    server: Server | None = None
    delayer: DelayerConfig | None = None
