"""Theorems about capacity: how many rows a batch can need, and which bucket always has them.

S: rows of the largest rank. T: tokens of the batch. k: its requests. E: rows captured for a bucket of b tokens, a
multiple of 2n with n E >= b (one rank alone has all tokens). A product of two variables is a variable of its own,
called by both (`n_rows` is n x S).
"""

from collections.abc import Iterable
from typing import Any

import z3

import cpbcg_ref
from cpbcg_ref.proving.closed import RANKS, extra, k, multiple, n, rank, request, rows_of, times
from cpbcg_ref.proving.model import Obligation, Theorem

rows, n_rows = z3.Ints("rows n_rows")  # S and n S
tokens, bucket, n_captured = z3.Ints("tokens bucket n_captured")  # T, b and n E
n_requests = z3.Int("n_requests")  # n k
Model = dict[str, int]
Obligations = Iterable[Obligation]


def ceiling(total: Any, name: str) -> tuple[Any, Any, Any]:
    """c = ceil(total / n), n c, and what is true of them."""
    whole, product = z3.Ints(f"{name} n_{name}")
    return whole, product, z3.And(product >= total, product < total + n)


def surplus(remainder: Any) -> Any:
    """What a request adds to n x rows - T of the rank `rank`."""
    return times(extra(rank, remainder), n) - remainder


def rows_bound() -> Obligations:
    one = request()
    yield Obligation((*RANKS, *one.given), surplus(one.remainder) <= n - 1, "n S - T grows by at most n - 1 a request")
    (per_rank, n_per_rank, first), (spread, n_spread, second) = ceiling(tokens, "per_rank"), ceiling(k, "spread")
    above = rows - (per_rank + k - spread) - 1
    product, sign = multiple(above, "above")
    is_product = product == n_rows - n_per_rank - n_requests + n_spread - n
    given = (n >= 1, n_rows <= tokens + n_requests - k, first, second, sign, is_product)
    yield Obligation(given, above < 0, "so S <= ceil(T / n) + k - ceil(k / n)")
    yield Obligation((n >= 1,), extra(0, z3.IntVal(1)) == 1, "k requests of one token have k rows on rank 0")


def lengths_of(model: Model) -> list[int]:
    return [model[name] for name in sorted(model) if name.startswith("length_")]


def three(*, least: int) -> tuple[list[Any], tuple[Any, ...]]:
    """Three requests, and what is true of them."""
    lengths = list(z3.Ints("length_0 length_1 length_2"))
    return lengths, tuple(length >= least for length in lengths)


def one_row_less() -> Obligations:
    lengths, given = three(least=1)
    bound = (z3.Sum(*lengths) + 1) / 2 + 3 - 2 - 1
    yield Obligation(given, z3.And(*[most <= bound for most in rows_of(lengths, 2)]))


def at_the_bound(model: Model) -> str:
    lengths = lengths_of(model)
    most = max(cpbcg_ref.per_rank_logical_tokens(lengths, cp_size=2))
    bound = -(-sum(lengths) // 2) + 3 - 2
    return f"lengths {lengths} on 2 ranks need {most} rows, the bound is {bound}" if most == bound else ""


# n S - T - k (n - 1) of a rank, at most, by the parity of k and of the rank's rows
MOST: dict[tuple[int, int], Any] = {(0, 0): z3.IntVal(0), (0, 1): -(n - 1), (1, 1): -rank, (1, 0): rank - n + 1}


def surplus_by_parity() -> Obligations:
    """By induction on the requests: each adds n x extra - remainder, and changes both parities or that of k alone."""
    yield Obligation(RANKS, MOST[0, 0] >= 0, "no request, no rows, no surplus")
    one, so_far = request(), z3.Int("surplus")
    added = surplus(one.remainder) - (n - 1)
    for (requests, own), bound in MOST.items():
        for odd in (0, 1):
            given = (*RANKS, *one.given, so_far <= bound, (extra(rank, one.remainder) == 1) == bool(odd))
            after = MOST[1 - requests, (own + odd) % 2]
            yield Obligation(given, so_far + added <= after, f"one request more, from parities {requests} and {own}")


def exact_slack() -> Obligations:
    """An overflow is contradicted for each parity. S are the rows of `rank`, whichever has most."""
    one = request()
    yield Obligation((*RANKS, *one.given, n == 1), one.rows_times_n(rank) == one.length, "one rank has the tokens")
    yield from surplus_by_parity()
    beyond, k_less = z3.Ints("beyond k_n_less_k")  # S - E and k (n - 1)
    product, sign = multiple(beyond - 1, "beyond_less_1")
    for (odd_requests, odd_rows), most in MOST.items():
        slack = k_less - (1 if odd_requests else 2) * (n - 1)
        overflow = (beyond >= 1, beyond % 2 == odd_rows, sign, z3.Implies(beyond >= 2, product >= n))
        found = (n_rows == n_captured + product + n, n_rows - tokens <= k_less + most, bucket <= n_captured)
        yield Obligation((*RANKS, n >= 2, *overflow, *found), bucket < tokens + slack, f"{odd_requests}, {odd_rows}")
    yield from one_less()


def one_less() -> Obligations:
    """2 i + 1 requests with a remainder of 1 (and one of none), whose bases sum to n m - i, for a large m."""
    i, n_i, n_m, nn_m = z3.Ints("i n_i n_m n_n_m")
    total, slack = 2 * (nn_m - n_i) + 2 * i + 1, 2 * (n_i - i)
    yield Obligation((i >= 0, n >= 1), total + slack - 1 == 2 * nn_m, "one token less than enough: n x 2 n m tokens")
    yield Obligation((n >= 1,), extra(0, z3.IntVal(1)) == 1, "each remainder has its row on rank 0")
    yield Obligation((i >= 0,), 2 * (n_m - i) + 2 * i + 1 > 2 * n_m, "rank 0 has more rows than the 2 n m captured")


def aligned(most: Any, cp_size: int) -> Any:
    unit = 2 * cp_size
    return (most + unit - 1) / unit * unit


def captured(bucket: Any, cp_size: int) -> Any:
    """Rows of a bucket that was captured as one request."""
    return aligned((bucket + cp_size - 1) / cp_size, cp_size)


def two_fit() -> Obligations:
    yield from exact_slack()
    k_less = z3.Int("k_n_less_k")
    yield Obligation((n >= 1, k_less == 2 * (n - 1)), k_less - 2 * (n - 1) == 0, "the slack of two requests is 0")


def slack_less_one() -> Obligations:
    lengths, given = three(least=4)
    enough = (bucket >= z3.Sum(*lengths) + 1, bucket <= z3.Sum(*lengths) + 2)
    fits = [aligned(most, 2) <= captured(bucket, 2) for most in rows_of(lengths, 2)]
    yield Obligation((*given, *enough), z3.And(*fits))


def tokens_alone() -> Obligations:
    lengths, given = three(least=4)
    fits = [aligned(most, 2) <= captured(bucket, 2) for most in rows_of(lengths, 2)]
    yield Obligation((*given, bucket == z3.Sum(*lengths)), z3.And(*fits))


def overflows(lengths: list[int], bucket: int, cp_size: int) -> str:
    need, have = (cpbcg_ref.required_local_tokens(one, cp_size=cp_size) or 0 for one in (lengths, [bucket]))
    batch = f"{len(lengths)} requests of {lengths[0]}" if len({*lengths}) == 1 else f"lengths {lengths}"
    return f"{batch} on {cp_size} ranks need {need} rows, bucket {bucket} has {have}" if need > have else ""


def active_batches() -> Obligations:
    one = request()
    active = (*RANKS, *one.given, one.base >= 1)
    yield Obligation(active, 2 * one.rows_times_n(rank) <= 3 * one.length, "2 n S <= 3 T, request by request")
    given = (n >= 1, 2 * n_rows <= 3 * tokens, 2 * bucket >= 3 * tokens, n_captured >= bucket)
    yield Obligation(given, n_rows <= n_captured, "so a bucket of 1.5 T has the rows")
    yield Obligation((tokens >= 0, 2 * bucket >= 3 * tokens), bucket >= tokens, "and holds the tokens")


def factor_14() -> Obligations:
    """Requests of 17 tokens on 8 ranks: 3 rows each on rank 0."""
    count = z3.Int("requests")
    enough = 10 * bucket >= 14 * 17 * count
    yield Obligation((count >= 1, count <= 1000, enough), aligned(3 * count, 8) <= captured(bucket, 8))


def several_need_more() -> Obligations:
    one = request()
    load, sum_so_far, m_rows = z3.Ints("load sum_of_loads m_rows")
    more = (sum_so_far <= m_rows, load <= rows)
    yield Obligation(more, sum_so_far + load <= m_rows + rows, "one rank more: T <= n S, as the loads sum to T")
    yield Obligation((*RANKS, *one.given), one.rows_times_n(rank) < one.length + n, "alone it has at most ceil(L / n)")
    per_rank, n_per_rank, is_ceiling = ceiling(tokens, "per_rank")
    product, sign = multiple(per_rank - rows - 1, "above")
    given = (n >= 1, tokens <= n_rows, is_ceiling, sign, product == n_per_rank - n_rows - n)
    yield Obligation(given, per_rank <= rows, "so S >= ceil(T / n)")


def as_many_as_one() -> Obligations:
    lengths, given = three(least=4)
    several = [aligned(most, 2) <= captured(z3.Sum(*lengths), 2) for most in rows_of(lengths, 2)]
    yield Obligation(given, z3.And(*several))


def beside_one() -> Obligations:
    """With u = 2n: A = ceil(S / u), B = ceil(ceil(T / n) / u), C = ceil(g / u), g = k - ceil(k / n)."""
    one_request, gap, above = z3.Ints("rows_of_one gap above")
    units = z3.Ints("u_A u_B u_C")
    rounded = [z3.And(u >= of, u < of + 2 * n) for u, of in zip(units, (rows, one_request, gap), strict=True)]
    product, sign = multiple(above, "above")  # above = A - B - C - 1
    is_product = 2 * product == units[0] - units[1] - units[2] - 2 * n
    given = (n >= 1, *rounded, rows <= one_request + gap, sign, is_product)
    yield Obligation(given, above < 0, "A <= B + C")


def within_one_unit() -> Obligations:
    """Requests of 5 tokens on 2 ranks: 3 rows each on rank 0."""
    count = z3.Int("requests")
    yield Obligation((count >= 1, count <= 1000), aligned(3 * count, 2) <= captured(5 * count, 2) + 4)


def far_beside_one(model: Model) -> str:
    lengths = [5] * model["requests"]
    need, one = (cpbcg_ref.required_local_tokens(batch, cp_size=2) or 0 for batch in (lengths, [sum(lengths)]))
    return f"{len(lengths)} requests of 5 on 2 ranks need {need} rows, as one {one}" if need > one + 4 else ""


THEOREMS = (
    Theorem(
        name="rows-bound",
        statement="A batch of k requests needs at most ceil(T/n) + k - ceil(k/n) rows on any rank, and k requests of "
        "one token need as many, for any number of ranks and requests.",
        claim=rows_bound,
        wrong="One row less is enough (3 requests, 2 ranks).",
        control=one_row_less,
        replay=at_the_bound,
    ),
    Theorem(
        name="exact-slack",
        statement="A captured bucket of at least T + 2(n-1) floor((k-1)/2) tokens has the rows, and with one token "
        "less some batch overflows it, for any number of ranks and requests.",
        claim=exact_slack,
        wrong="One token less is enough (3 requests, 2 ranks: T + 1).",
        control=slack_less_one,
        replay=lambda model: overflows(lengths_of(model), model["bucket"], 2),
    ),
    Theorem(
        name="active-batches",
        statement="Active batches (every length at least 2n) have 2 n x rows <= 3 T, so a captured bucket of at least "
        "1.5 T always has the rows: a ladder with a bucket in [1.5 T, 2 T] for every T never runs them eager.",
        claim=active_batches,
        wrong="A bucket of at least 1.4 T has the rows.",
        control=factor_14,
        replay=lambda model: overflows([17] * model["requests"], model["bucket"], 8),
    ),
    Theorem(
        name="two-requests",
        statement="Two requests never overflow the bucket that their number of tokens picks, for any number of ranks.",
        claim=two_fit,
        wrong="The bucket that the token count picks has the rows (3 requests, 2 ranks).",
        control=tokens_alone,
        replay=lambda model: overflows(lengths_of(model), model["bucket"], 2),
        source="sglang#33906",
    ),
    Theorem(
        name="several-need-more",
        statement="Several requests never need fewer rows than one request of as many tokens, for any number of ranks.",
        claim=several_need_more,
        wrong="They need as many (3 requests, 2 ranks).",
        control=as_many_as_one,
        replay=lambda model: overflows(lengths_of(model), sum(lengths_of(model)), 2),
    ),
    Theorem(
        name="beside-one",
        statement="k requests need at most 2n ceil((k - ceil(k/n)) / 2n) rows more than one request of as many tokens.",
        claim=beside_one,
        wrong="They need at most 2n rows more (2 ranks).",
        control=within_one_unit,
        replay=far_beside_one,
    ),
)
