"""What the checkers of batches share: sentences that fit on a line, and the oracle's view of a batch on a server."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from cpbcg_ref.answers import BatchSeen, Captured, Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import Batch, ReplayCase, SelectCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.model import MUST, Check, Invariant, Part, Witness
from cpbcg_ref.oracles.tokens import live_rows, shardable, smallest_multiple

LIMIT = 99  # columns
PLAIN = Contract(graph_strategies=("zigzag", "interleave"), min_replay_bucket=True)  # what witnesses assume


def part(family: str, check: Check, *needs: str, **witnesses: Witness) -> Part:
    """One part; `needs` are capabilities beyond the family's, names of witnesses are words joined by underscores."""
    named = {name.replace("_", " "): met for name, met in witnesses.items()}
    return Part(family=family, check=check, needs=needs, witnesses=named)


def invariant(id: str, *parts: Part, sources: str = "", level: str = MUST) -> Invariant:
    """The statement is the first sentence of the first checker; `sources` are separated by spaces."""
    text = " ".join((parts[0].check.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")
    statement = text if text[1].isupper() else text[0].lower() + text[1:]
    return Invariant(id=id, level=level, statement=statement, parts=parts, sources=tuple(sources.split()))


def clip(text: str) -> str:
    return text if len(text) <= LIMIT else text[: LIMIT - 3] + "..."


def about(text: str, lengths: tuple[int, ...], cp_size: int) -> str:
    """The sentence with the batch behind it, spelled out if there is room.

    >>> about("rank 0 owns no row", (3, 5), 8)
    'rank 0 owns no row (lengths 3,5, cp 8)'
    """
    full = f"{text} (lengths {','.join(map(str, lengths)) or 'none'}, cp {cp_size})"
    short = f"{text} ({len(lengths)} requests, {sum(lengths)} tokens, cp {cp_size})"
    return next((sentence for sentence in (full, short) if len(sentence) <= LIMIT), clip(text))


def raised(who: str, error: Raised) -> str:
    return clip(f"{who} raised {what(error)}")


def what(error: Raised) -> str:
    return f"{error.kind}: {error.message}" if error.message else f"{error.kind} ({error.where})"


def first_raised(who: str, answers: Any) -> str | None:
    """The sentence for a `Raised` among the answers of the ranks, or instead of all of them."""
    if isinstance(answers, Raised):
        return raised(who, answers)
    each = (raised(f"{who}: rank {i}", answer) for i, answer in enumerate(answers or ()) if isinstance(answer, Raised))
    return next(each, None)


def number(chosen: int | Raised | None) -> str:
    return "eager" if chosen is None else f"{chosen.kind if isinstance(chosen, Raised) else f'bucket {chosen}'}"


def layout_check(**due: str) -> Callable[[Check], Check]:
    """A check of one sharded batch. `due` names the answers it needs: a `Raised` among them is the violation."""

    def decorate(judge: Check) -> Check:
        @wraps(judge)
        def check(case: Any, seen: Any, contract: Contract) -> str | None:
            refused = (first_raised(name, getattr(seen, field)) for field, name in due.items())
            if sentence := next(filter(None, refused), None):
                return sentence
            wrong = judge(case, seen, contract)
            return about(wrong, getattr(case, "batch", case).lengths, case.cp_size) if wrong else None

        return check

    return decorate


def shards(lengths: tuple[int, ...], cp_size: int, strategy: str, contract: Contract = PLAIN) -> bool:
    """Is CP active for these lengths."""
    limits = {"min_length": contract.min_length, "divides": contract.divides}
    return shardable(lengths, cp_size=cp_size, strategy=strategy, **limits)


def padded(rows: int, cp_size: int, strategy: str, contract: Contract) -> int:
    return smallest_multiple(rows, 1 if cp_size == 1 else contract.alignment[strategy] * cp_size)


def allowed(case: SelectCase, contract: Contract) -> SelectCase:
    """The question as this engine can be asked it: without the opt-in floor where it has none."""
    return case if contract.min_replay_bucket else replace(case, min_replay_bucket=0)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One batch on one rank that captured: what the rank answered, and what it should have known."""

    server: Server
    batch: Batch
    rank: int
    captured: Captured
    seen: BatchSeen
    contract: Contract

    @property
    def admitted(self) -> bool | Raised:
        return self.seen.admitted[self.rank]

    @property
    def loaded(self) -> Loaded | Raised | None:
        return self.seen.loaded[self.rank]

    @property
    def replays(self) -> int | Raised | None:
        """The bucket that admission implies: None for eager, the selector's answer where replay raised."""
        if self.admitted is not True:
            return self.admitted if isinstance(self.admitted, Raised) else None
        return self.loaded.bucket if isinstance(self.loaded, Loaded) else self.seen.bucket[self.rank]

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
        ladder, rows = self.captured.capture_num_tokens, self.captured.bucket_local_tokens
        case = SelectCase(
            num_tokens=self.batch.num_tokens,
            required_local_tokens=0 if tokens_alone else self.required,
            capture_num_tokens=ladder,
            bucket_local_tokens=tuple((bucket, bucket) for bucket in ladder) if tokens_alone else rows,
            max_padding_factor=self.server.max_padding_factor,
            min_replay_bucket=self.server.min_replay_bucket,
        )
        return allowed(case, self.contract)


def turns(case: ReplayCase, seen: ReplaySeen, contract: Contract = PLAIN) -> Iterator[Turn]:
    """Every batch on every rank, in order."""
    for batch, got in zip(case.batches, seen.batches, strict=True):
        for rank, captured in enumerate(seen.captured):
            if not isinstance(captured, Raised):
                server = case.server
                yield Turn(server=server, batch=batch, rank=rank, captured=captured, seen=got, contract=contract)


def every_turn(judge: Callable[[Turn], str | None]) -> Check:
    """A check that judges each batch on each rank alone."""

    @wraps(judge)
    def check(case: ReplayCase, seen: ReplaySeen, contract: Contract) -> str | None:
        for turn in turns(case, seen, contract):
            if wrong := judge(turn):
                return about(wrong, turn.batch.lengths, case.server.cp_size)
        return None

    return check


def some_turn(met: Callable[[Turn], bool], *, cp: bool = True) -> Witness:
    """A witness that came up if it did for some batch, on a server with CP (or without)."""
    return lambda case, seen: (case.server.cp_size > 1) == cp and any(map(met, turns(case, seen)))
