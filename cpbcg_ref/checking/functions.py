"""What of an engine's answers is compared with another's: one entry per function and family of cases.

An answer is laid out by place, such as "pass 3, rank 1", and compared place by place as data. That two engines raise is
no difference if the exceptions are of one kind: messages and lines move from release to release.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import filter as matching
from typing import Any

from cpbcg_ref.answers import Captured, Graph, LastPassSeen, Raised, Verdict
from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.errors import InvalidInput

Answers = dict[str, Any]  # by place
EVERY_RANK = "every rank"
LIMITS = ("num_requests", "num_decodes", "num_prefills", "needs_prefill", "tokens_per_request")
STATE = ("wait_passes", "episode_open", "delayed_passes", "free_pass_used")


class Unasked:
    """Stands where an engine was not asked, which is no difference to anything."""


UNASKED = Unasked()


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function of an engine under one family of cases. of: its answers among those to a case, by place.

    needs: capabilities beyond the family's.
    """

    family: str
    name: str
    of: Callable[[Any], Answers]
    needs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.family}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where two engines differ, and what each of them answered there."""

    place: str
    left: Any
    right: Any


def differing(function: Function, left: Any, right: Any) -> list[Place]:
    """The places at which the answers of two engines to one case differ.

    Where one of them could not start its server, that is the only difference there can be.
    """
    if function.name == "start":
        both = [{"start": seen if isinstance(seen, Raised) else "started"} for seen in (left, right)]
    elif isinstance(left, Raised) or isinstance(right, Raised):
        return []
    else:
        both = [function.of(left), function.of(right)]
    for own, other in (both, both[::-1]):
        if EVERY_RANK in own and EVERY_RANK not in other:  # one raised as a whole
            own |= dict.fromkeys(other, own.pop(EVERY_RANK))
    places = dict.fromkeys((*both[0], *both[1]))
    pairs = [Place(place=place, left=both[0].get(place), right=both[1].get(place)) for place in places]
    return [one for one in pairs if not alike(one.left, one.right)]


def alike(one: Any, other: Any) -> bool:
    """Are two answers the same as data; exceptions are if they are of one kind."""
    if isinstance(one, Unasked) or isinstance(other, Unasked):
        return True
    if isinstance(one, Raised) and isinstance(other, Raised):
        return one.kind == other.kind
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def ranks(values: Any, where: str = "") -> Answers:
    """One answer per rank, or the one instead of all of them; None is what an engine has no method for."""
    if values is None:
        return {}
    if isinstance(values, tuple):
        return {f"{where}rank {rank}": value for rank, value in enumerate(values)}
    return {EVERY_RANK: values}


def per_rank(field: str) -> Callable[[Any], Answers]:
    return lambda seen: ranks(getattr(seen, field))


def captured(per_rank: tuple[Captured | Raised, ...]) -> Answers:
    """Per rank the buckets with their synthetic lengths and rows, and the ladder that may be selected."""
    told: Answers = {}
    for rank, one in enumerate(per_rank):
        if isinstance(one, Raised):
            told[f"rank {rank}, ladder"] = one
            continue
        rows = dict(one.bucket_local_tokens)
        told[f"rank {rank}, ladder"] = one.capture_num_tokens
        told |= {f"rank {rank}, bucket {bucket}, lengths": lengths for bucket, lengths in one.requests}
        told |= {f"rank {rank}, bucket {bucket}, rows": count for bucket, count in rows.items()}
    return told


def per_batch(field: str) -> Callable[[Any], Answers]:
    def of(seen: Any) -> Answers:
        told: Answers = {}
        for number, batch in enumerate(seen.batches, start=1):
            told |= ranks(getattr(batch, field), f"batch {number}, ")
        return told

    return of


def where_asked(field: str) -> Callable[[Any], Answers]:
    """Per batch, of the ranks on which both engines were asked: those that admitted a batch, or those that did not."""
    of = per_batch(field)
    return lambda seen: {place: UNASKED if one is None else one for place, one in of(seen).items()}


def verdicts(seen: Any) -> Iterator[tuple[str, Verdict | Raised]]:
    """Every verdict and its place: of a sequence of passes, or of two runs that end differently."""
    if isinstance(seen, LastPassSeen):
        passes = {f"pass {number}": one for number, one in enumerate(seen.history, start=1)}
        passes |= {"last": seen.last, "other last": seen.other_last}
    else:
        passes = {f"pass {number}": one for number, one in enumerate(seen.passes, start=1)}
    for name, told in passes.items():
        yield from ((f"{name}, rank {rank}", one) for rank, one in enumerate(told))


def verdict(seen: Any) -> Answers:
    return {
        place: one if isinstance(one, Raised) else "allow" if one.allow else "delay" for place, one in verdicts(seen)
    }


def reason(seen: Any) -> Answers:
    return {place: UNASKED if isinstance(one, Raised) else one.reason for place, one in verdicts(seen)}


def state(seen: Any) -> Answers:
    """What a rank carries into its next pass."""
    asked = [(place, one) for place, one in verdicts(seen) if isinstance(one, Verdict)]
    told = {f"{place}, {field}": getattr(one, field) for place, one in asked for field in STATE}
    # A rank that raised has no state, which its verdict tells.
    raised = [place for place, one in verdicts(seen) if isinstance(one, Raised)]
    return told | {f"{place}, {field}": UNASKED for place in raised for field in STATE}


def selection(seen: Any) -> Answers:
    """Of one call of the selector, or of the two calls of a pair."""
    calls = {"base, ": seen.base, "more, ": seen.more} if hasattr(seen, "base") else {"": seen}
    words = {"answer": "answer", "again": "asked again", "mutated": "argument changed"}
    return {f"{who}{word}": getattr(call, field) for who, call in calls.items() for field, word in words.items()}


def attempts(seen: Any) -> Answers:
    return {f"pass {number}": size for number, size in enumerate(seen.max_prefill_bs, start=1)}


def graphs(seen: Any) -> Answers:
    """What every graph was captured for, at a place of its own, whatever their order."""
    told: dict[str, list[str]] = {}
    for graph in seen.captured:
        limits = {field.name: getattr(graph, field.name) for field in fields(graph) if field.name in LIMITS}
        told.setdefault(str(graph), []).append(
            ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None and limit is not False)
        )
    return {name: tuple(sorted(captured_for)) for name, captured_for in told.items()}


def chosen(seen: Any) -> Answers:
    """By kind and size of the graph; what it was captured for is another function's."""
    first, again = (tuple(map(by_name, each)) for each in (seen.chosen, seen.again))
    both = {f"{place}, asked again": one for place, one in ranks(again).items()}
    return ranks(first) | both | {"argument changed": seen.mutated}


def by_name(graph: Graph | Raised | None) -> str | Raised:
    return graph if isinstance(graph, Raised) else str(graph or "eager")


def every_field(seen: Any) -> Answers:
    """For a family of which nothing is known here."""
    told: Answers = {}
    for field in fields(seen):
        value = getattr(seen, field.name)
        several = isinstance(value, tuple)
        told |= ranks(value, f"{field.name}, ") if several else {field.name: value}
    return told


LAYOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "is_cp_active": ("active", ("gate",)),
    "required_local_tokens": ("required", ("capacity",)),
    "logical_rows": ("logical", ("rows",)),
    "shard": ("rows", ()),
    "shard_positions": ("positions", ("positions",)),
    "gather": ("restored", ("gather",)),
    "kv_segments": ("segments", ("keys",)),
    "shard-captured": ("spare_rows", ("captured-rows",)),
    "gather-captured": ("spare_restored", ("gather", "captured-rows")),
}
BAD_LAYOUT = ("is_cp_active", "required_local_tokens", "shard")
DELAYER = {"verdict": verdict, "reason": reason, "state": state}
PASSES = ("passes", "skewed-passes", "last-pass")
REPLAY = {"is_cp_active": "active", "can_run_graph": "admitted", "select": "bucket"}
NEVER = ("data",)  # judged by replaying, see gpu_conformance/


def functions() -> Iterator[Function]:
    for name, (field, needs) in LAYOUT.items():
        for family in ("layout", "bad-layout") if name in BAD_LAYOUT else ("layout",):
            yield Function(family=family, name=name, of=per_rank(field), needs=needs)
    yield Function(family="capture", name="captured", of=lambda seen: captured(seen.ranks))
    for family in ("select", "select-pair"):
        yield Function(family=family, name="select_replay_bucket", of=selection)
    yield Function(family="replay", name="start", of=dict)
    yield Function(family="replay", name="captured", of=lambda seen: captured(seen.captured))
    for name, field in REPLAY.items():
        yield Function(family="replay", name=name, of=per_batch(field))
    yield Function(family="replay", name="load_batch", of=where_asked("loaded"))
    yield Function(family="replay", name="load_batch-unadmitted", of=where_asked("refused"))
    for family in PASSES:
        for name, of in DELAYER.items():
            yield Function(family=family, name=name, of=of)
    yield Function(family="attempts", name="max_prefill_bs", of=attempts)
    yield Function(family="votes", name="votes", of=per_rank("prefillable"))
    yield Function(family="dispatch", name="captured", of=graphs)
    yield Function(family="dispatch", name="chosen", of=chosen)


def catalogue() -> dict[str, Function]:
    """Every function by its id, in the order of the families."""
    known = {one.id: one for one in functions()}
    rest = (family for family in FAMILIES if family not in (*NEVER, *(one.family for one in known.values())))
    known |= {one.id: one for one in (Function(family=family, name="answers", of=every_field) for family in rest)}
    places = list(FAMILIES)
    return dict(sorted(known.items(), key=lambda item: places.index(item[1].family)))


FUNCTIONS: Mapping[str, Function] = catalogue()


def functions_like(patterns: Iterable[str]) -> list[str]:
    """The ids of functions that any of the patterns matches: ids, "family.*", or several with commas.

    Raises InvalidInput for a pattern that matches none; it names the nearest ids.

    >>> functions_like(["*.select_replay_bucket", "votes.*"])
    ['select.select_replay_bucket', 'select-pair.select_replay_bucket', 'votes.votes']
    """
    wanted = [name.strip() for pattern in patterns for name in pattern.split(",")]
    for name in wanted:
        if not matching(FUNCTIONS, name):
            near = get_close_matches(name, FUNCTIONS, n=3) or FUNCTIONS
            raise InvalidInput(f"no function is called {name!r}: did you mean {' or '.join(near)}?")
    return [name for name in FUNCTIONS if any(matching([name], pattern) for pattern in wanted)]
