"""What an engine answered: plain frozen values, in the engine's own order, never repaired.

Wherever an engine may raise, the answer is a `Raised` instead of a value: raising is an answer too.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Raised:
    """An exception that came out of the engine's own files."""

    kind: str  # the exception's class name
    message: str
    where: str  # file:line in the engine

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} ({self.where})"


Rows = tuple[int | None, ...]  # indices of tokens in the batch, None for padding


@dataclass(frozen=True, kw_only=True)
class LayoutSeen:
    """One sharded batch. Every tuple has one entry per CP rank unless it is a `Raised` as a whole.

    What an engine has no method for is None. active: does the engine shard this batch. required: of every rank
    `required_local_tokens`, None for "eager".
    logical: rows that the engine says it owns. rows / positions: physical rows after sharding, as token indices (0 to
    T - 1) and as the global positions that travelled with them. lengths: cumulative lengths that each rank gets.
    segments: (rows, keys) in local row order: `rows` consecutive rows whose last one sees `keys` keys. restored: what
    gather gives on every rank, as token indices.
    spare_rows / spare_restored: the same after the row counts were overwritten by a larger captured capacity.
    """

    active: tuple[bool | Raised, ...] | None = None
    required: tuple[int | Raised | None, ...] | None = None
    logical: tuple[int, ...] | Raised | None = None
    rows: tuple[Rows, ...] | Raised | None = None
    positions: tuple[tuple[int, ...], ...] | Raised | None = None
    lengths: tuple[tuple[int, ...], ...] | Raised | None = None
    segments: tuple[tuple[tuple[int, int], ...], ...] | Raised | None = None
    restored: tuple[Rows, ...] | Raised | None = None
    spare_rows: tuple[Rows, ...] | Raised | None = None
    spare_restored: tuple[Rows, ...] | Raised | None = None


@dataclass(frozen=True, kw_only=True)
class BadLayoutSeen:
    """`shard`: what the sharder made of lengths it cannot shard; `active`: what the gate above it says."""

    active: tuple[bool | Raised, ...] | None
    rows: tuple[Rows, ...] | Raised
    required: tuple[int | Raised | None, ...]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What a server captured on one rank: synthetic extend lengths and rows per bucket, and what it may select."""

    requests: tuple[tuple[int, tuple[int, ...]], ...]
    bucket_local_tokens: tuple[tuple[int, int], ...]
    capture_num_tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CaptureSeen:
    ranks: tuple[Captured | Raised, ...]


@dataclass(frozen=True, kw_only=True)
class SelectSeen:
    answer: int | Raised | None
    again: int | Raised | None
    mutated: str = ""  # which argument changed, "" for none


@dataclass(frozen=True, kw_only=True)
class SelectPairSeen:
    base: SelectSeen
    more: SelectSeen


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One replayed batch on one rank: bucket (tokens), captured rows of that bucket, live rows fed to it."""

    bucket: int
    captured_rows: int | None
    live_rows: int | None


@dataclass(frozen=True, kw_only=True)
class BatchSeen:
    """One batch on every rank. loaded: the replay where the rank admitted the batch, else None. refused: the replay
    where it did not, if that was asked."""

    active: tuple[bool | Raised, ...]
    admitted: tuple[bool | Raised, ...]
    bucket: tuple[int | Raised | None, ...]  # what the batch-level selector answers, None for eager
    loaded: tuple[Loaded | Raised | None, ...]
    refused: tuple[Loaded | Raised | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplaySeen:
    captured: tuple[Captured, ...]
    batches: tuple[BatchSeen, ...]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rank's verdict at one pass. The last three describe the state it carries into the next pass."""

    allow: bool
    reason: str  # "", no_wait, wait_success, wait_timeout, token_watermark, delay
    wait_passes: int
    episode_open: bool
    delayed_passes: int
    free_pass_used: bool


@dataclass(frozen=True, kw_only=True)
class PassesSeen:
    """One tuple of verdicts per pass, one verdict per rank."""

    passes: tuple[tuple[Verdict | Raised, ...], ...]


@dataclass(frozen=True, kw_only=True)
class LastPassSeen:
    last: tuple[Verdict | Raised, ...]
    other_last: tuple[Verdict | Raised, ...]
    history: tuple[tuple[Verdict | Raised, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class VotesSeen:
    """Does each rank report itself prefillable."""

    prefillable: tuple[bool | Raised, ...]


@dataclass(frozen=True, kw_only=True)
class AttemptsSeen:
    """`max_prefill_bs` that the rank would report after each attempt."""

    max_prefill_bs: tuple[int | Raised, ...]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One captured graph, told by the step that it was captured for: what it can run. None: any number.

    mode: its kind where an engine has several, such as "FULL". num_requests, num_decodes, num_prefills: the most of
    them. needs_prefill: it is not for steps of decodes alone. tokens_per_request: what every request has exactly.
    """

    num_tokens: int
    mode: str = ""
    num_requests: int | None = None
    num_decodes: int | None = None
    num_prefills: int | None = None
    needs_prefill: bool = False
    tokens_per_request: int | None = None

    def __str__(self) -> str:
        return f"{self.mode or 'graph'} {self.num_tokens}"


@dataclass(frozen=True, kw_only=True)
class DispatchSeen:
    """captured: every graph that there is, the same on all ranks. chosen: what each rank replays, None for eager.
    mutated: which argument changed, "" for none."""

    captured: tuple[Graph, ...]
    chosen: tuple[Graph | Raised | None, ...]
    again: tuple[Graph | Raised | None, ...]
    mutated: str = ""
