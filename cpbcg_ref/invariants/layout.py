"""layout.*: every token has one owner, moves as one, sees its causal keys, and comes back.

Any correct partition is accepted: a row is judged by the token that stands in it, never by the block it should be in.
"""

from collections import Counter
from typing import Any

from cpbcg_ref.answers import BadLayoutSeen, LayoutSeen, Raised, Rows
from cpbcg_ref.cases import BadLayoutCase, LayoutCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import about, invariant, layout_check, part, shards
from cpbcg_ref.oracles.tokens import Places, causal_keys, live_rows, places


def live(rows: Rows) -> list[int]:
    return [token for token in rows if token is not None]


def misowned(rows: tuple[Rows, ...], num_tokens: int) -> str | None:
    """What is wrong with the owners of the tokens 0 to num_tokens - 1."""
    owners: dict[int, str] = {}
    for rank, local in enumerate(rows):
        for row, token in enumerate(local):
            if token is None:
                continue
            if not 0 <= token < num_tokens:
                return f"rank {rank} row {row} holds no token of the batch"
            if token in owners:
                return f"token {token} is owned twice: {owners[token]}, rank {rank} row {row}"
            owners[token] = f"rank {rank} row {row}"
    lost = [token for token in range(num_tokens) if token not in owners]
    return f"{len(lost)} of {num_tokens} tokens have no owner, first token {lost[0]}" if lost else None


@layout_check(rows="sharding")
def bijection(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Every token of the batch is owned by exactly one (rank, row)."""
    return misowned(seen.rows, case.batch.num_tokens)


@layout_check(rows="sharding", logical="row counts", segments="kv segments")
def conserves(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Block sizes of a request sum to its length; per-rank rows sum to the tokens of the batch."""
    if (total := sum(seen.logical)) != case.batch.num_tokens:
        return f"rows per rank {list(seen.logical)} sum to {total}, the batch has {case.batch.num_tokens} tokens"
    for rank, count in enumerate(seen.logical):
        blocks, tokens = sum(rows for rows, _ in seen.segments[rank]), len(live(seen.rows[rank]))
        if not count == blocks == tokens:
            return f"rank {rank} counts {count} rows, its blocks sum to {blocks}, its shard holds {tokens} tokens"
    owner = dict(enumerate(places(case.batch.lengths, case.batch.prefixes)))
    made = Counter(owner[token][0] for local in seen.rows for token in live(local) if token in owner)
    for request, length in enumerate(case.batch.lengths):
        if made[request] != length:
            return f"blocks of request {request} sum to {made[request]}, its length is {length}"
    return None


@layout_check(
    rows="sharding", restored="gathering", spare_rows="sharding to captured rows", spare_restored="gathering those"
)
def roundtrip(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Shard, pad, all-gather, restore is the identity, also after captured capacity overwrote the row counts."""
    identity = tuple(range(case.batch.num_tokens))
    for restored, how in ((seen.restored, ""), (seen.spare_restored, f" with {case.spare_rows} spare rows")):
        for rank, back in enumerate(restored):
            if len(back) != len(identity):
                return f"rank {rank} gathers{how} {len(back)} rows of {len(identity)} tokens"
            if back != identity:
                place = next(i for i in identity if back[i] != i)
                return f"rank {rank} gathers{how} {'padding' if back[place] is None else back[place]} at {place}"
    return None


@layout_check(rows="sharding", positions="sharding positions")
def companions(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Everything per token moves by the same map; per-sequence metadata is not sliced as tokens."""
    owner = dict(enumerate(places(case.batch.lengths, case.batch.prefixes)))
    for rank, (rows, positions) in enumerate(zip(seen.rows, seen.positions, strict=True)):
        if len(rows) != len(positions):
            return f"rank {rank} has {len(rows)} rows of hidden states and {len(positions)} of positions"
        for row, token in enumerate(rows):
            if token in owner and positions[row] != owner[token][1]:
                return f"rank {rank} row {row}: position {positions[row]} beside token {token} of {owner[token][1]}"
    return None


@layout_check(rows="sharding", segments="kv segments")
def causal(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Each row sees exactly its causal keys, with and without prefix; padding changes none."""
    owner = places(case.batch.lengths, case.batch.prefixes)
    for rank, (rows, segments) in enumerate(zip(seen.rows, seen.segments, strict=True)):
        if wrong := causal_on_rank(rows, segments, owner):
            return f"rank {rank} {wrong}"
    return None


def causal_on_rank(rows: Rows, segments: tuple[tuple[int, int], ...], owner: Places) -> str | None:
    start = 0
    for length, keys in segments:
        inside = rows[start : start + length]
        if len(inside) < length:
            return f"attends with {start + length} rows, its shard has {len(rows)}"
        for i, token in enumerate(inside):
            visible = range(keys - (length - 1 - i))
            if wrong := wrong_keys(token, visible, owner, inside[0]):
                return f"row {start + i} {wrong}"
        start += length
    left = live(rows[start:])
    return f"row {rows.index(left[0])} holds token {left[0]} but attends to nothing" if left else None


def wrong_keys(token: int | None, visible: range, owner: Places, first: Any) -> str | None:
    """Keys belong to one sequence: that of `first`, the token in the block's first row, which was judged before."""
    if token is None:
        return f"is padding but sees {len(visible)} keys"
    if not 0 <= token < len(owner):
        return "holds no token of the batch"
    request, position = owner[token]
    if owner[first][0] != request:
        return f"is of request {request} but sees keys of request {owner[first][0]}"
    if visible != causal_keys(position):
        return f"(request {request}, position {position}) sees {len(visible)} keys, not {position + 1}"
    return None


@layout_check(active="CP active", rows="sharding")
def nonempty(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """CP active implies every rank owns at least one row."""
    empty = [rank for rank, rows in enumerate(seen.rows) if not live(rows)]
    return f"CP is active, rank {empty[0]} owns no row" if empty and True in seen.active else None


@layout_check(rows="sharding")
def balance(case: LayoutCase, seen: Any, contract: Contract) -> str | None:
    """Zigzag: between ranks the rows of one request differ by at most 1, its causal work (sum over owned rows of
    visible keys) by at most (3n-2) floor(L/2n) + 2n + P, and by 0 when 2n divides L.

    An engine that declares other than balanced blocks promises no balance.
    """
    if case.strategy != "zigzag" or contract.blocks != "balanced":
        return None
    owner = dict(enumerate(places(case.batch.lengths, case.batch.prefixes)))
    rows, work = ({request: [0] * case.cp_size for request, _ in owner.values()} for _ in range(2))
    for rank, local in enumerate(seen.rows):
        for request, position in (owner[token] for token in local if token in owner):
            rows[request][rank] += 1
            work[request][rank] += len(causal_keys(position))
    for request in rows:
        bound = work_bound(case.batch.lengths[request], case.batch.prefixes[request], case.cp_size)
        for what, per_rank, most in (("rows", rows[request], 1), ("work", work[request], bound)):
            if max(per_rank) - min(per_rank) > most:
                return f"request {request}: {what} per rank {per_rank} differ by more than {most}"
    return None


def work_bound(length: int, prefix: int, cp_size: int) -> int:
    """The bound that the specification states, in keys."""
    blocks, rest = divmod(length, 2 * cp_size)
    return (3 * cp_size - 2) * blocks + 2 * cp_size + prefix if rest else 0


@layout_check()
def sharder_refuses(case: BadLayoutCase, seen: BadLayoutSeen, contract: Contract) -> str | None:
    """A length that cannot be sharded is refused loudly by what shards it (admission answers eager), a negative one
    everywhere; never dropped, duplicated or wrapped.

    Rows that still own every token once are no harm; the gate above must not say that CP is active.
    """
    if not isinstance(seen.rows, Raised):
        if negative(case, seen):
            return "a negative length was sharded without an error"
        if wrong := misowned(seen.rows, sum(case.lengths)):
            return f"sharded without an error, but {wrong}"
    if True in seen.active and not shards(case.lengths, case.cp_size, case.strategy, contract):
        return f"rank {seen.active.index(True)} says CP is active for a batch that cannot be sharded"
    return None


def leaf_refuses(case: BadLayoutCase, seen: BadLayoutSeen, contract: Contract) -> str | None:
    answers = [required for required in seen.required if not isinstance(required, Raised)]
    if not answers or not negative(case, seen):
        return None
    return about(f"leaf required_local_tokens answers {answers[0]} to a negative length", case.lengths, case.cp_size)


def negative(case: BadLayoutCase, seen: BadLayoutSeen) -> bool:
    return min(case.lengths, default=0) < 0


def too_short(case: BadLayoutCase, seen: BadLayoutSeen) -> bool:
    return 0 < min(case.lengths, default=0) < case.cp_size


def several(case: LayoutCase, seen: LayoutSeen) -> bool:
    return len(case.batch.lengths) > 1


def prefix(case: LayoutCase, seen: LayoutSeen) -> bool:
    return any(case.batch.prefixes)


def spare(case: LayoutCase, seen: LayoutSeen) -> bool:
    return case.spare_rows > 0


def shortest(case: LayoutCase, seen: LayoutSeen) -> bool:
    return min(live_rows(case.batch.lengths, case.cp_size, case.strategy)) <= 2


def even(case: LayoutCase, seen: LayoutSeen) -> bool:
    return case.strategy == "zigzag" and any(length % (2 * case.cp_size) == 0 for length in case.batch.lengths)


INVARIANTS = [
    invariant("layout.bijection", part("layout", bijection, several_requests=several), sources="sglang#19656"),
    invariant("layout.conserves", part("layout", conserves, several_requests=several), sources="sglang#31833"),
    invariant("layout.roundtrip", part("layout", roundtrip, spare_rows=spare), sources="sglang#27343"),
    invariant(
        "layout.companions",
        part("layout", companions, several_requests=several),
        sources="sglang#18280 sglang#20531 sglang#32098 sglang#21170 sglang#31833 sglang#37836",
    ),
    invariant(
        "layout.causal", part("layout", causal, several_requests=several, a_prefix=prefix), sources="sglang#29161"
    ),
    invariant("layout.nonempty", part("layout", nonempty, at_most_two_rows=shortest), sources="sglang#19656"),
    invariant("layout.balance", part("layout", balance, a_length_of_even_blocks=even), sources="pytorch#189902"),
    invariant(
        "layout.bad-input",
        part("bad-layout", sharder_refuses, a_length_below_cp=too_short),
        part("bad-layout", leaf_refuses, "capacity", a_negative_length=negative),
        sources="SkyRL#1407 verl#5981",
    ),
]
