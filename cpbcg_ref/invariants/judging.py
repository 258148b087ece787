"""What the checkers of batches share: sentences that fit on a line, and the oracle's view of a batch on a server."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from cpbcg_ref.answers import Captured, Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import Batch, ReplayCase, SelectCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.model import Judge, Sentences, Witness, invariant
from cpbcg_ref.oracles.tokens import live_rows, shardable, smallest_multiple

LINE = 99  # columns
PLAIN = Contract(graph_strategies=("zigzag", "interleave"), min_replay_bucket=True)  # what witnesses assume


def fitted(text: str, *details: str) -> str:
    """The sentence with the first of the details that leaves it on a line; cut only if it is too long alone."""
    sentences = [*(f"{text} ({detail})" for detail in details), text]
    return next((sentence for sentence in sentences if len(sentence) <= LINE), text[: LINE - 3] + "...")


def about(text: str, lengths: tuple[int, ...], cp_size: int) -> str:
    """The sentence with the batch behind it, spelled out if there is room."""
    spelled_out = f"lengths {','.join(map(str, lengths)) or 'none'}, cp {cp_size}"
    return fitted(text, spelled_out, f"{len(lengths)} requests, {sum(lengths)} tokens, cp {cp_size}")


def what(error: Raised) -> str:
    return f"{error.kind}: {error.message}" if error.message else f"{error.kind} ({error.where})"


def raised(who: str, answers: Any) -> list[str]:
    """A sentence for each `Raised` among the answers of the ranks, or for the one instead of all of them."""
    if isinstance(answers, Raised):
        return [fitted(f"{who} raised {what(answers)}")]
    ranks = enumerate(answers if isinstance(answers, tuple) else ())
    return [fitted(f"{who}: rank {rank} raised {what(one)}") for rank, one in ranks if isinstance(one, Raised)]


def number(chosen: int | Raised | None) -> str:
    if isinstance(chosen, Raised):
        return chosen.kind
    return "eager" if chosen is None else f"bucket {chosen}"


def shards(lengths: tuple[int, ...], cp_size: int, strategy: str, contract: Contract) -> bool:
    """Is CP active for these lengths."""
    return shardable(lengths, cp_size, strategy, **contract.sharding)


def padded(rows: int, cp_size: int, strategy: str, contract: Contract) -> int:
    return smallest_multiple(rows, 1 if cp_size == 1 else contract.alignment[strategy] * cp_size)


def allowed(case: SelectCase, contract: Contract) -> SelectCase:
    """The question as this engine can be asked it: without the opt-in floor where it has none."""
    return case if contract.min_replay_bucket else replace(case, min_replay_bucket=0)


@dataclass(frozen=True)
class Turn:
    """One batch on one rank: what the rank answered, and what it should have known."""

    server: Server
    batch: Batch
    contract: Contract
    rank: int
    captured: Captured
    active: bool | Raised
    admitted: bool | Raised
    selected: int | Raised | None
    loaded: Loaded | Raised | None
    refused: Loaded | Raised | None

    @property
    def replays(self) -> int | Raised | None:
        """The bucket that admission implies: None for eager, the selector's answer where replay raised."""
        if self.admitted is not True:
            return self.admitted if isinstance(self.admitted, Raised) else None
        return self.loaded.bucket if isinstance(self.loaded, Loaded) else self.selected

    @property
    def rows(self) -> int | None:
        """Rows captured for that bucket, None if unknown or eager."""
        return next((rows for bucket, rows in self.captured.bucket_local_tokens if bucket == self.replays), None)

    @property
    def sharded(self) -> bool:
        return shards(self.batch.lengths, self.server.cp_size, self.server.strategy, self.contract)

    @property
    def why_eager(self) -> str:
        """Why no CP graph can run this batch whatever was captured, "" if one can. Never "" without CP."""
        if not self.batch.lengths_known:
            return "lengths unknown"
        if self.server.strategy not in self.contract.graph_strategies:
            return f"no graphs for {self.server.strategy}"
        return "" if self.sharded else "CP not active"

    @property
    def live(self) -> tuple[int, ...]:
        return live_rows(self.batch.lengths, self.server.cp_size, self.server.strategy, self.contract.blocks)

    @property
    def required(self) -> int:
        return padded(max(self.live), self.server.cp_size, self.server.strategy, self.contract)

    def question(self, *, tokens_alone: bool = False) -> SelectCase:
        """The selection that this rank has to make; by the token rule a bucket has as many rows as tokens."""
        tokens, ladder = self.batch.num_tokens, self.captured.capture_num_tokens
        need = 0 if tokens_alone else self.required
        rows = tuple(zip(ladder, ladder, strict=True)) if tokens_alone else self.captured.bucket_local_tokens
        case = SelectCase(
            num_tokens=tokens,
            required_local_tokens=need,
            capture_num_tokens=ladder,
            bucket_local_tokens=rows,
            max_padding_factor=self.server.max_padding_factor,
            min_replay_bucket=self.server.min_replay_bucket,
        )
        return allowed(case, self.contract)


def turns(case: ReplayCase, seen: ReplaySeen, contract: Contract = PLAIN) -> Iterator[list[Turn]]:
    """Per batch, in order: the turn of every rank."""
    for batch, got in zip(case.batches, seen.batches, strict=True):
        refused = got.refused or (None,) * len(got.loaded)
        answers = zip(seen.captured, got.active, got.admitted, got.bucket, got.loaded, refused, strict=True)
        yield [Turn(case.server, batch, contract, rank, *one) for rank, one in enumerate(answers)]


def every_turn(judge: Callable[[Turn], Sentences]) -> Judge:
    """Judges each batch on each rank alone."""

    def check(case: ReplayCase, seen: ReplaySeen, contract: Contract) -> Sentences:
        every = chain.from_iterable(turns(case, seen, contract))
        return (about(wrong, turn.batch.lengths, case.server.cp_size) for turn in every for wrong in judge(turn))

    return check


def some_turn(met: Callable[[Turn], bool]) -> Witness:
    """Came up for some batch on a server with CP."""
    return lambda case, seen: case.server.cp_size > 1 and any(map(met, chain.from_iterable(turns(case, seen))))


replay = partial(invariant, family="replay", each=every_turn, some=some_turn)
