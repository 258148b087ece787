"""What an engine adapter is: a plain class with the methods of the capabilities it has. No base class.

Required attributes:
    name, version    strings for reports
    contract         a `Contract`: what the engine declares instead of the adapter repairing anything
    roots            paths (files or folders, str) of the engine's own code; an exception raised there is the engine's
                     answer, one raised anywhere else is a broken adapter
Optional attribute:
    unavailable      {capability: reason} for capabilities that this release does not have although the class has the
                     methods

Capabilities and their methods (payloads, positions and lengths are lists of int; `batch` is a `cases.Batch`; every
method that takes `cp_rank` answers for that one rank and may raise; the others answer for all ranks at once). What an
engine lacks is skipped with that reason; only `layout` is needed by all of `layout.*`:

layout
    shard(batch, payload, *, cp_size, strategy) -> list[list[int]]
        shard one int per token the way hidden states move; physical rows of every rank, padding where and as the engine
        makes it (declare its value in `Contract.padding_value`); takes `padding_factor` too where that is declared
gate
    is_cp_active(batch, *, cp_size, strategy, cp_rank) -> bool                  is this batch sharded at all
rows
    logical_rows(batch, *, cp_size, strategy) -> list[int]                      rows that each rank owns
positions
    shard_positions(batch, positions, *, cp_size, strategy) -> list[list[int]]  sharded as everything else per token
lengths
    shard_lengths(batch, payload, cumulative, *, cp_size, strategy) -> list[list[int]]
        what every rank gets of the cumulative lengths that stand in a batch beside its tokens: 0 first, the last one
        again and again as fixed shapes want it
gather
    gather(batch, rows, *, cp_size, strategy) -> list[list[int]]                what every rank gets back
keys
    kv_segments(batch, *, cp_size, strategy) -> list[list[tuple[int, int]]]
        per rank, in local row order: (rows, keys), where the last of `rows` consecutive rows sees `keys` keys
captured-rows
    shard and gather take `captured_rows`, which overwrites the row counts as a graph does; an engine whose methods do
    not take it says so in `unavailable`
capacity
    required_local_tokens(lengths, *, cp_size, strategy, cp_rank) -> int | None    aligned rows; lengths may be None
selection
    select_replay_bucket(*, num_tokens, required_local_tokens, capture_num_tokens, bucket_local_tokens,
                         max_padding_factor, min_replay_bucket) -> int | None
        arguments arrive as a list and a dict, handed on uncopied, so that a mutation is seen
replay
    start(server) -> an object, captured and ready, with
        captured(cp_rank) -> answers.Captured
        is_cp_active(batch, cp_rank) -> bool
        can_run_graph(batch, cp_rank) -> bool      admission, gates above the runner included
        select(batch, cp_rank) -> int | None       the batch-level selector that admission and replay share
        load_batch(batch, cp_rank) -> answers.Loaded      also asked of batches that are too short to shard: raise
negotiation
    start_delayers(config) -> an object with step(reports) -> list[Verdict | Raised]: one pass, all ranks
attempts
    start_attempts() -> an object with step(attempt) -> int: max_prefill_bs after this pass
votes
    votes(mid_chunk, waiting) -> list[bool]    the vote of each rank: is it prefillable

dispatch
    start_dispatcher(case) -> an object that is set up, with its graphs captured, as a `cases.DispatchCase` says, with
        captured() -> list[answers.Graph]
        modes(names, *, eager) -> set              the engine's own values for these modes; if a caller can choose
        dispatch(*, allowed=None, excluded=None) -> list[Graph | None | Raised], one per rank: the step of the case
            with what `modes` made where the case names some, handed on uncopied, so that a mutation is seen

A class with `batch.lengths_known` False must tell the engine None for the lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

METHODS = {"layout": "shard", "gate": "is_cp_active", "rows": "logical_rows", "positions": "shard_positions"}
METHODS |= {"lengths": "shard_lengths"}
METHODS |= {"gather": "gather", "keys": "kv_segments", "captured-rows": "gather", "capacity": "required_local_tokens"}
METHODS |= {"selection": "select_replay_bucket", "replay": "start", "negotiation": "start_delayers"}
METHODS |= {"attempts": "start_attempts", "votes": "votes", "data": "replay_data"}
METHODS |= {"dispatch": "start_dispatcher"}


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """One way in which the choice of a graph for a step is set up.

    modes: kinds of graphs, what saves most first; "" where there is one kind. choosable: can a caller rule modes out.
    tokens_per_decode: what a decode can have. multiples: every bucket is a multiple of those. even: the engine makes
    its own ladder, of as many buckets as are asked for, evenly up to `max_requests` tokens. limits: are there graphs
    that not every step with no more tokens can run: for so many requests, for decodes alone.
    """

    modes: tuple[str, ...] = ("",)
    choosable: bool = False
    tokens_per_decode: tuple[int, ...] = (1,)
    multiples: bool = False
    even: bool = False
    limits: bool = True


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What an engine declares about itself; the generators and the invariants read it.

    strategies: layouts it can shard. graph_strategies: those that it captures graphs for. cp_sizes: group sizes that it
    supports. blocks: "balanced" (remainder to the early blocks) or "ceil" (chunks of ceil(L / 2n)). divides: every
    length must be a multiple of divides * cp_size (0: any length). min_length: shortest request that zigzag can shard,
    in units of cp_size. alignment: rows are padded to a multiple of alignment[strategy] * cp_size when cp_size > 1.
    ladder: captured buckets are the asked ones rounded up to a multiple of ladder * cp_size (0: as asked).
    min_replay_bucket: does it offer the opt-in floor. padding_value: what `shard` puts in padding rows of the payload.
    max_requests: most requests of a batch that it shards (0: any number). cached_prefixes: can a request have tokens in
    the KV cache already. negative_lengths: can it be told one, which sequences that come with their tokens never have.
    padding_factor: does the caller choose what lengths, or all together, are padded to a multiple of. dispatchers: the
    ways in which the choice of a graph for a step can be set up, by name.
    """

    strategies: tuple[str, ...] = ("zigzag",)
    graph_strategies: tuple[str, ...] = ("zigzag",)
    cp_sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 16)
    blocks: str = "balanced"
    divides: int = 0
    min_length: int = 2
    alignment: Mapping[str, int] = field(default_factory=lambda: {"zigzag": 2, "interleave": 1})
    ladder: int = 0
    min_replay_bucket: bool = False
    padding_value: int = 0
    max_requests: int = 0
    cached_prefixes: bool = True
    negative_lengths: bool = True
    padding_factor: bool = False
    dispatchers: Mapping[str, Dispatcher] = field(default_factory=dict)

    @property
    def sharding(self) -> dict[str, int]:
        """What decides whether a batch can be sharded, as `oracles.tokens.shardable` takes it."""
        return {"min_length": self.min_length, "divides": self.divides, "max_requests": self.max_requests}

    def aligned(self, rows: int, *, cp_size: int, strategy: str) -> int:
        """Round rows up to this engine's alignment."""
        unit = 1 if cp_size == 1 else self.alignment[strategy] * cp_size
        return -(-rows // unit) * unit


def missing(engine: object, capability: str) -> str | None:
    """Why the engine cannot be asked about a capability, or None if it can."""
    declared: str | None = getattr(engine, "unavailable", {}).get(capability)
    absent = not callable(getattr(engine, METHODS[capability], None))
    return declared or (f"the adapter has no {METHODS[capability]}" if absent else None)


@cache
def root_above(filename: str, roots: tuple[Path, ...]) -> Path | None:
    return next((root for root in roots if Path(filename).is_relative_to(root)), None)


def root_of(engine: object, filename: str) -> Path | None:
    """The one of the engine's `roots` that this file is or lies under, None if the file is not the engine's."""
    return root_above(filename, tuple(map(Path, getattr(engine, "roots", ()))))
