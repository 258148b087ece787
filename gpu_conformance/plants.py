"""Defects to plant, and the checks that must see each: `--plant NAME` runs with one, it must end with exit code 1."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_conformance import defects
from gpu_conformance.rank import Parts
from gpu_conformance.work import Decide


@dataclass(frozen=True, kw_only=True)
class Plant:
    """what: the mistake, one sentence. caught_by: ids, each of which must see it. source: the public bug."""

    what: str
    caught_by: tuple[str, ...]
    source: str = ""
    parts: Callable[[int], Parts] = field(default=lambda cp_rank: Parts())
    decide: Decide | None = None


def plant(defect: Any, must: str, *, source: str = "", on: str = "", **parts: Any) -> Plant:
    """A defect of these parts, on all ranks or on rank 1 alone; its docstring says what is wrong.

    must: what catches it, short for data.replay-equals-eager and so on.
    """
    words = " ".join(str(defect.__doc__).split()).removesuffix(".")

    def of_rank(cp_rank: int) -> Parts:
        return Parts() if on == "rank 1" and cp_rank != 1 else Parts(**parts)

    ids = tuple(map(IDS.__getitem__, must.split()))
    return Plant(what=f"{on}: {words}" if on else words, caught_by=ids, source=source, parts=of_rank)


def loading(defect: Any, must: str, **told: Any) -> Plant:
    return plant(defect, must, buffers=defect, **told)


def computing(defect: Any, must: str, **told: Any) -> Plant:
    return plant(defect, must, model=defect, **told)


def replaying(defect: Any, must: str, **told: Any) -> Plant:
    return plant(defect, must, graph=defect, **told)


IDS = {"eager": "data.replay-equals-eager", "history": "data.history-free"}
IDS |= {"padding": "data.padding-inert", "bounds": "data.in-bounds"}
PLANTS: dict[str, Plant] = {
    "token-only-selection": Plant(
        what=str(defects.tokens_alone.__doc__).removesuffix("."),
        caught_by=("capacity.no-overflow",),
        source="sglang#33906",
        decide=defects.tokens_alone,
    ),
    "one-batch-ahead": Plant(what="one rank is a batch ahead of the others", caught_by=("agree.collectives",)),
    "stale-slots": loading(defects.StaleTail, "history eager", source="sglang#24743 sglang#32477"),
    "stale-requests": loading(defects.StaleRequests, "history eager", source="sglang#34184"),
    "live-count-missing": loading(defects.StaleLive, "history eager", source="sglang#35588"),
    "late-tokens": loading(defects.LateTokens, "history eager", on="rank 1"),
    "boundary-block": loading(defects.EarlyPadding, "eager padding", source="sglang#27343"),
    "padded-break": loading(defects.PaddedBreak, "padding eager", source="sglang#40629"),
    "idle-rows-live": loading(defects.IdleRows, "padding eager", source="sglang#35766"),
    "padding-read": computing(defects.ReadsPadding, "padding eager"),
    "break-padding-read": computing(defects.ReadsBreak, "padding"),
    "foreign-padding": loading(defects.ForeignPadding, "history eager"),
    "unmasked-padding": loading(defects.UnmaskedPadding, "bounds"),
    "rows-vs-indptr": loading(defects.ShortOffsets, "bounds", source="sglang#35876"),
    "long-padding": loading(defects.LongPadding, "bounds"),
    "long-output": replaying(defects.LongOutput, "bounds"),
    "weak-inputs": replaying(defects.WeakOutputs, "eager", source="sglang#37606 sglang#37448"),
    "another-kernel": replaying(defects.AnotherKernel, "eager"),
    "frozen-optional": loading(defects.FrozenPrefix, "eager", source="sglang#29018 sglang#31391 sglang#33726"),
    "lost-writes": loading(defects.LostWrites, "eager", source="sglang#32606"),
    "short-output": plant(defects.short_output, "eager", output=defects.short_output),
    "swapped-slots": loading(defects.SwappedSlots, "eager"),
    "rope-on-one-rank": computing(defects.Turned, "eager", on="rank 1"),
    "rope-on-all-ranks": computing(defects.Turned, "eager"),
    "mask": computing(defects.Masked, "eager"),
}
