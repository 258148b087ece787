"""layout.* and capacity.required: every token has one owner, moves as one, sees its causal keys, and comes back.

Any correct partition is accepted: a row is judged by the token that stands in it, never by the block it should be in.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

from cpbcg_ref.answers import BadLayoutSeen, LayoutSeen, Raised, Rows
from cpbcg_ref.cases import BadLayoutCase, LayoutCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants.judging import about, padded, raised, shards
from cpbcg_ref.invariants.model import Judge, Sentences, invariant, only_if
from cpbcg_ref.oracles.tokens import causal_keys, live_rows, places, smallest_multiple

Owners = dict[int | None, tuple[int, int]]  # (request, position) of every token of the batch


def reads(**answers: str) -> Callable[[Judge], Judge]:
    """Judges one batch by these answers, each with its name in sentences: a rank that raised or is missing there is a
    violation."""

    def each(judge: Judge) -> Judge:
        def check(case: Any, seen: Any, contract: Contract) -> Sentences:
            given = [(name, getattr(seen, field)) for field, name in answers.items()]
            refused = [sentence for name, answer in given for sentence in raised(name, answer)]
            counts = [(name, len(answer)) for name, answer in given if isinstance(answer, tuple)]
            refused += [f"{name} answers for {n} of {case.cp_size} ranks" for name, n in counts if n != case.cp_size]
            lengths = getattr(case, "batch", case).lengths
            return refused or (about(wrong, lengths, case.cp_size) for wrong in judge(case, seen, contract))

        return check

    return each


def nothing_bad(contract: Contract) -> str:
    told = contract.negative_lengths or contract.padding_factor
    return "" if told or contract.min_length or contract.divides else "it shards every batch that it can be told of"


rows_and = partial(reads, rows="sharding")
gathered = rows_and(restored="gathering")
gathered_spare = rows_and(spare_rows="sharding to captured rows", spare_restored="gathering those")
moved = rows_and(positions="sharding positions")
attended = rows_and(segments="kv segments")
answered = rows_and(required="required rows")
layout = partial(invariant, family="layout", each=rows_and())
bad_layout = partial(invariant, family="bad-layout", each=reads(), excluded=nothing_bad)


@only_if(lambda contract: contract.max_requests != 1)
def several_requests(case: LayoutCase, seen: LayoutSeen) -> bool:
    return len(case.batch.lengths) > 1


@only_if(lambda contract: contract.cached_prefixes)
def a_prefix(case: LayoutCase, seen: LayoutSeen) -> bool:
    return any(case.batch.prefixes)


def spare_rows(case: LayoutCase, seen: LayoutSeen) -> bool:
    return case.spare_rows > 0


def lengths_are_answered(case: LayoutCase, seen: LayoutSeen) -> bool:
    return isinstance(seen.lengths, tuple)


def at_most_two_rows(case: LayoutCase, seen: LayoutSeen) -> bool:
    return min(live_rows(case.batch.lengths, case.cp_size, case.strategy)) <= 2


def a_length_of_even_blocks(case: LayoutCase, seen: LayoutSeen) -> bool:
    return case.strategy == "zigzag" and any(length % (2 * case.cp_size) == 0 for length in case.batch.lengths)


@only_if(lambda contract: "zigzag" in contract.strategies and not contract.divides and contract.max_requests != 1)
def remainders_pile_up(case: LayoutCase, seen: LayoutSeen) -> bool:
    """Remainders of several requests: more rows than one request with as many tokens."""
    both = (case.batch.lengths, (case.batch.num_tokens,))
    several, one = (max(live_rows(lengths, case.cp_size, case.strategy)) for lengths in both)
    return several > one


@only_if(lambda contract: "zigzag" in contract.strategies and not contract.divides)
def a_remainder_above_cp(case: LayoutCase, seen: LayoutSeen) -> bool:
    """More than the early blocks can take one token each of."""
    n = case.cp_size
    return case.strategy == "zigzag" and any(length % (2 * n) > n for length in case.batch.lengths)


@only_if(lambda contract: contract.min_length > 0)
def a_length_below_cp(case: BadLayoutCase, seen: BadLayoutSeen) -> bool:
    return 0 < min(case.lengths, default=0) < case.cp_size


@only_if(lambda contract: contract.padding_factor)
def a_factor_that_leaves_tokens_over(case: BadLayoutCase, seen: BadLayoutSeen) -> bool:
    """In some padded length, by fewer than 2 x cp of them."""
    padded = [smallest_multiple(length, case.padding_factor or 2 * case.cp_size) for length in case.lengths]
    return any(length % (2 * case.cp_size) for length in padded)


@only_if(lambda contract: contract.negative_lengths)
def a_negative_length(case: BadLayoutCase, seen: BadLayoutSeen) -> bool:
    return min(case.lengths, default=0) < 0


def live(rows: Rows) -> list[int]:
    return [token for token in rows if token is not None]


def owners(case: LayoutCase) -> Owners:
    return dict(enumerate(places(case.batch.lengths, case.batch.prefixes)))


def misowned(rows: tuple[Rows, ...], num_tokens: int) -> Sentences:
    """What is wrong with the owners of the tokens 0 to num_tokens - 1."""
    owned: dict[int, str] = {}
    for rank, local in enumerate(rows):
        for row, token in enumerate(local):
            if token is None:
                continue
            if not 0 <= token < num_tokens:
                yield f"rank {rank} row {row} holds no token of the batch"
            if token in owned:
                yield f"token {token} is owned twice: {owned[token]}, rank {rank} row {row}"
            owned[token] = f"rank {rank} row {row}"
    if lost := [token for token in range(num_tokens) if token not in owned]:
        yield f"{len(lost)} of {num_tokens} tokens have no owner, first token {lost[0]}"


@layout("layout.bijection", several_requests, sources="19656")
def bijection(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Every token of the batch is owned by exactly one (rank, row)."""
    return misowned(seen.rows, case.batch.num_tokens)


@layout("layout.conserves", several_requests, a_remainder_above_cp, sources="31833")
def conserves(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Block sizes of a request sum to its length; per-rank rows sum to the tokens of the batch."""
    owner = owners(case)
    made = Counter(owner[token][0] for local in seen.rows for token in local if token in owner)
    for request, length in enumerate(case.batch.lengths):
        if made[request] != length:
            yield f"blocks of request {request} sum to {made[request]}, its length is {length}"


@layout(
    "layout.conserves", several_requests, a_remainder_above_cp, each=rows_and(logical="row counts"), needs=("rows",)
)
def counts_conserve(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    if (total := sum(seen.logical)) != case.batch.num_tokens:
        yield f"rows per rank {list(seen.logical)} sum to {total}, the batch has {case.batch.num_tokens} tokens"
    for rank, (count, rows) in enumerate(zip(seen.logical, seen.rows, strict=True)):
        if count != len(live(rows)):
            yield f"rank {rank} counts {count} rows, its shard holds {len(live(rows))} tokens"


@layout("layout.conserves", several_requests, a_remainder_above_cp, each=attended, needs=("keys",))
def blocks_conserve(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    for rank, (segments, rows) in enumerate(zip(seen.segments, seen.rows, strict=True)):
        if (blocks := sum(length for length, _ in segments)) != len(live(rows)):
            yield f"rank {rank}: blocks sum to {blocks} rows, its shard holds {len(live(rows))} tokens"


@layout("layout.roundtrip", at_most_two_rows, each=gathered, needs=("gather",), sources="27343")
def roundtrip(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Shard, pad, all-gather, restore is the identity, also after captured capacity overwrote the row counts."""
    return misgathered(case, seen.restored)


@layout("layout.roundtrip", spare_rows, each=gathered_spare, needs=("gather", "captured-rows"))
def spare_roundtrip(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    most = max(map(len, seen.rows)) + case.spare_rows
    for rank, rows in enumerate(seen.spare_rows):
        if len(rows) != most:
            yield f"rank {rank} has {len(rows)} rows where {most} were captured"
    yield from misgathered(case, seen.spare_restored, f" with {case.spare_rows} spare rows")


def misgathered(case: LayoutCase, restored: tuple[Rows, ...], how: str = "") -> Sentences:
    for rank, back in enumerate(restored):
        if len(back) != case.batch.num_tokens:
            yield f"rank {rank} gathers{how} {len(back)} rows of {case.batch.num_tokens} tokens"
        for place, token in enumerate(back):
            if token != place:
                yield f"rank {rank} gathers{how} {'padding' if token is None else token} at {place}"


@layout(
    "layout.companions",
    several_requests,
    each=moved,
    needs=("positions",),
    sources="18280 20531 32098 21170 31833 37836",
)
def companions(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Everything per token moves by the same map; per-sequence metadata is not sliced as tokens."""
    owner = owners(case)
    for rank, (rows, positions) in enumerate(zip(seen.rows, seen.positions, strict=True)):
        if len(rows) != len(positions):
            yield f"rank {rank} has {len(rows)} rows of hidden states and {len(positions)} of positions"
        for row, token in enumerate(rows):
            if token in owner and positions[row] != owner[token][1]:
                yield f"rank {rank} row {row}: position {positions[row]} beside token {token} of {owner[token][1]}"


@layout("layout.companions", several_requests, lengths_are_answered, needs=("lengths",), sources="Megatron-Bridge#1964")
def lengths_stay(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """A rank gets the lengths of the whole batch or those of its own rows; an engine that raises slices none."""
    owner, whole = owners(case), ends(case.batch.lengths)
    answers = zip(seen.rows, seen.lengths, strict=True) if lengths_are_answered(case, seen) else ()
    for rank, (rows, told) in enumerate(answers):
        held = Counter(owner[token][0] for token in rows if token in owner)
        own = ends(held[request] for request in range(len(case.batch.lengths)))
        if until_repeated(list(told)) not in (whole, own):
            yield f"rank {rank} gets cumulative lengths {list(told)}, not {whole} or its own {own}"


def ends(lengths: Iterable[int]) -> list[int]:
    """Where each sequence begins and the last one ends."""
    return until_repeated(list(accumulate(lengths, initial=0)))


def until_repeated(cumulative: list[int]) -> list[int]:
    """Without the empty sequences at the end."""
    return cumulative[: cumulative.index(cumulative[-1]) + 1] if cumulative else []


@layout("layout.causal", a_prefix, each=attended, needs=("keys",), sources="29161")
def causal(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Each row sees exactly its causal keys, with and without prefix; padding changes none."""
    owner = owners(case)
    for rank, (rows, segments) in enumerate(zip(seen.rows, seen.segments, strict=True)):
        sees = [(range(keys - length + 1 + i), i) for length, keys in segments for i in range(length)]
        if len(sees) > len(rows):
            yield f"rank {rank} attends with {len(sees)} rows, its shard has {len(rows)}"
        for row, (token, (keys, i)) in enumerate(zip(rows, sees, strict=False)):
            for wrong in wrong_keys(keys, token, first=rows[row - i], owner=owner):
                yield f"rank {rank} row {row} {wrong}"
        for row, token in enumerate(rows[len(sees) :], start=len(sees)):
            if token is not None:
                yield f"rank {rank} row {row} holds token {token} but attends to nothing"


def wrong_keys(keys: range, token: Any, *, first: Any, owner: Owners) -> Sentences:
    """Keys belong to one sequence: that of `first`, the token in the block's first row, which was judged before."""
    request, position = owner.get(token, (None, -1))
    if token is None:
        yield f"is padding but sees {len(keys)} keys"
    elif request is None:
        yield "holds no token of the batch"
    elif request != owner[first][0]:
        yield f"is of request {request} but sees keys of request {owner[first][0]}"
    elif keys != causal_keys(position):
        yield f"(request {request}, position {position}) sees {len(keys)} keys, not {position + 1}"


@layout("layout.nonempty", at_most_two_rows, each=rows_and(active="CP active"), needs=("gate",), sources="19656")
def nonempty(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """CP active implies every rank owns at least one row."""
    for rank, rows in enumerate(seen.rows):
        if True in seen.active and not live(rows):
            yield f"CP is active, rank {rank} owns no row"


def no_balance(contract: Contract) -> str:
    balanced = "zigzag" in contract.strategies and contract.blocks == "balanced"
    return "" if balanced else "the engine declares no balanced zigzag blocks"


@layout("layout.balance", a_length_of_even_blocks, a_remainder_above_cp, excluded=no_balance, sources="pytorch#189902")
def balance(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Zigzag: between ranks the rows of one request differ by at most 1, its causal work (sum over owned rows of
    visible keys) by at most (3n-2) floor(L/2n) + 2n + P, and by 0 when 2n divides L."""
    if case.strategy != "zigzag":
        return  # other layouts promise no balance
    owner, n = owners(case), case.cp_size
    rows, work = (defaultdict[int, list[int]](lambda: [0] * n) for _ in range(2))
    for rank, local in enumerate(seen.rows):
        for request, position in (owner[token] for token in local if token in owner):
            rows[request][rank] += 1
            work[request][rank] += len(causal_keys(position))
    for request, (length, prefix) in enumerate(zip(case.batch.lengths, case.batch.prefixes, strict=True)):
        bound = (3 * n - 2) * (length // (2 * n)) + 2 * n + prefix if length % (2 * n) else 0
        for what, per_rank, most in (("rows", rows[request], 1), ("work", work[request], bound)):
            if max(per_rank) - min(per_rank) > most:
                yield f"request {request}: {what} per rank {per_rank} differ by more than {most}"


@layout("capacity.required", remainders_pile_up, each=answered, needs=("capacity",), sources="33906 26911")
def required(case: LayoutCase, seen: Any, contract: Contract) -> Sentences:
    """Required rows >= rows really produced by sharding on every rank, and equal to the padded maximum."""
    most = max(len(live(rows)) for rows in seen.rows)
    expected = padded(most, case.cp_size, case.strategy, contract)
    for rank, (answer, rows) in enumerate(zip(seen.required, seen.rows, strict=True)):
        if answer is None and case.strategy not in contract.graph_strategies:
            continue  # the batch runs eager
        if answer != expected:
            yield f"rank {rank} requires {answer} rows, the largest rank owns {most}: {expected} padded"
        if len(rows) > answer:
            yield f"rank {rank} requires {answer} rows, its shard has {len(rows)}"


@bad_layout("layout.bad-input", a_length_below_cp, a_factor_that_leaves_tokens_over, sources="SkyRL#1407 verl#5981")
def sharder_refuses(case: BadLayoutCase, seen: BadLayoutSeen, contract: Contract) -> Sentences:
    """A length that cannot be sharded is refused loudly by what shards it (admission answers eager), a negative one
    everywhere; never dropped, duplicated or wrapped."""
    if not isinstance(seen.rows, Raised):
        if a_negative_length(case, seen):
            yield "a negative length was sharded without an error"
        for wrong in misowned(seen.rows, sum(case.lengths)):  # rows that own every token once are no harm
            how = f"padded to multiples of {case.padding_factor}" if case.padding_factor else "sharded"
            yield f"{how} without an error, but {wrong}"


@bad_layout("layout.bad-input", a_negative_length, needs=("capacity",))
def leaf_refuses(case: BadLayoutCase, seen: BadLayoutSeen, contract: Contract) -> Sentences:
    for answer in seen.required:
        if a_negative_length(case, seen) and not isinstance(answer, Raised):
            yield f"leaf required_local_tokens answers {answer} to a negative length"


@bad_layout("layout.bad-input", a_negative_length, needs=("gate",))
def gate_refuses(case: BadLayoutCase, seen: Any, contract: Contract) -> Sentences:
    if True in seen.active and not shards(case.lengths, case.cp_size, case.strategy, contract):
        yield f"rank {seen.active.index(True)} says CP is active for a batch that cannot be sharded"
