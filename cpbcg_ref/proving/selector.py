"""Theorems about an engine's selector: its own function, executed on ladders of up to 8 buckets without a value."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import z3

from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import Number, Table, number, paths, term

BUCKETS, FLOORED = 8, 4
LARGE = 10**300  # a float holds it; larger numbers may be refused
Model = dict[str, int]
Obligations = Iterable[Obligation]
Claim = Callable[["Asked", Any], Any]  # of the question and the chosen bucket
SCOPE = f" (the engine's code, ladders of up to {BUCKETS} buckets)."


def rows_by_bucket(buckets: list[Any], rows: list[Any]) -> Any:
    pairs = zip(buckets, rows, strict=True)
    return Table(pairs) if any(isinstance(bucket, Number) for bucket in buckets) else dict(pairs)


@dataclass(frozen=True)
class Asked:
    """A captured ladder, the rows of its buckets, a batch's tokens, and the rows that it needs."""

    buckets: list[Any]
    rows: list[Any]
    num_tokens: Any
    required: Any
    floor: Any = 0

    def ask(self, engine: Any) -> Any:
        return engine.select_replay_bucket(
            num_tokens=self.num_tokens,
            required_local_tokens=self.required,
            capture_num_tokens=list(self.buckets),
            bucket_local_tokens=rows_by_bucket(self.buckets, self.rows),
            max_padding_factor=2,
            min_replay_bucket=self.floor,
        )

    def with_more_rows(self, make: Callable[[str], Any]) -> "Asked":
        return replace(self, rows=[rows + make(f"more_{i}") for i, rows in enumerate(self.rows)])

    def fits(self, at: int) -> Any:
        """Bucket `at` holds the tokens and the rows."""
        return z3.And(self.holds_tokens(at), term(self.rows[at]) >= term(self.required))

    def has_a_row_to_spare(self, at: int) -> Any:
        return term(self.rows[at]) > term(self.required)

    def holds_tokens(self, at: int) -> Any:
        return term(self.buckets[at]) >= term(self.num_tokens)

    def bounded(self, at: int) -> Any:
        return term(self.buckets[at]) <= 2 * term(self.num_tokens)

    def allowed(self, at: int) -> Any:
        """It holds them without too much padding, or is small enough for the opt-in floor."""
        within_floor = term(self.buckets[at]) <= term(self.floor)
        return z3.And(self.fits(at), z3.Or(self.bounded(at), within_floor))

    def is_aligned(self, at: int, cp_size: int) -> Any:
        """The rows of bucket `at` are a multiple of 2n, and n ranks with so many rows hold its tokens."""
        rows = term(self.rows[at])
        return z3.And(rows == 2 * cp_size * z3.Int(f"units_{at}"), cp_size * rows >= term(self.buckets[at]))

    def has_room(self, at: int, cp_size: int, percent: int) -> Any:
        """It is aligned and has at least so many percent of the tokens, at most 200."""
        enough = 100 * term(self.buckets[at]) >= percent * term(self.num_tokens)
        return z3.And(self.is_aligned(at, cp_size), enough, self.bounded(at))

    def one_is(self, bucket: Any, rule: Callable[[int], Any]) -> Any:
        """It is one of the buckets for which the rule holds."""
        return z3.Or(*[z3.And(term(own) == term(bucket), rule(at)) for at, own in enumerate(self.buckets)])

    def smallest(self, bucket: Any, rule: Callable[[int], Any]) -> Any:
        """No bucket for which the rule holds is smaller."""
        return z3.And(*[z3.Implies(rule(at), term(bucket) <= term(own)) for at, own in enumerate(self.buckets)])

    def none(self, rule: Callable[[int], Any]) -> Any:
        return z3.Not(z3.Or(*map(rule, range(len(self.buckets)))))


def question(buckets: int, make: Callable[[str], Any] = number, *, floor: bool = False) -> Asked:
    sizes, rows = ([make(f"{name}_{i}") for i in range(buckets)] for name in ("bucket", "rows"))
    return Asked(sizes, rows, make("num_tokens"), make("required_local_tokens"), make("floor") if floor else 0)


def legal(asked: Asked) -> list[Any]:
    """An ascending ladder, a batch with tokens."""
    numbers = [term(one) for one in (*asked.buckets, *asked.rows, asked.num_tokens, asked.required, asked.floor)]
    ascending = [term(low) < term(high) for low, high in pairwise(asked.buckets)]
    sizes = [term(asked.buckets[0]) >= 1, term(asked.num_tokens) >= 1]
    return [*sizes, *ascending, *[z3.And(one >= 0, one < LARGE) for one in numbers]]


def selections(engine: Any, claim: Claim, *, eager: bool = False, buckets: int = BUCKETS) -> Iterator[Obligation]:
    """The claim about every bucket that the engine chooses, or about every batch for which it chooses none."""
    for asked in map(question, range(1, buckets + 1)):
        for given, answer in paths(partial(asked.ask, engine), *legal(asked)):
            if (answer is None) == eager:
                yield Obligation(tuple(given), claim(asked, answer), f"{len(asked.buckets)} buckets")


def with_floor(engine: Any, claim: Claim, *, buckets: int) -> Iterator[Obligation]:
    """The claim about every answer, for any floor."""
    for asked in (question(count, floor=True) for count in range(1, buckets + 1)):
        for given, answer in paths(partial(asked.ask, engine), *legal(asked)):
            yield Obligation(tuple(given), claim(asked, answer), f"{len(asked.buckets)} buckets")


def is_right(asked: Asked, answer: Any) -> Any:
    """The smallest bucket that is allowed, None if none is."""
    if answer is None:
        return asked.none(asked.allowed)
    return z3.And(asked.one_is(answer, asked.allowed), asked.smallest(answer, asked.allowed))


def is_right_without(asked: Asked, answer: Any) -> Any:
    """Likewise, as if there were no floor."""
    return is_right(replace(asked, floor=0), answer)


def never_eager(asked: Asked, none: Any, *, percent: int = 150, ranks: tuple[int, ...] = (2, 4, 8)) -> Any:
    """No bucket has so much room if the batch is active: its largest rank has S rows, 2 n S <= 3 T, and as many are
    required, aligned."""
    most, units, required = z3.Int("most_rows"), z3.Int("units"), term(asked.required)
    claims = []
    for n in ranks:
        active = z3.And(2 * n * most <= 3 * term(asked.num_tokens), required == 2 * n * units, required < most + 2 * n)
        room = partial(asked.has_room, cp_size=n, percent=percent)
        claims.append(z3.Implies(active, asked.none(room)))
    return z3.And(*claims)


def twice(engine: Any, buckets: int) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Per way: its conditions, the choice, and the choice with more rows in any of the buckets."""
    asked = question(buckets)
    more = [z3.And(z3.Int(f"more_{i}") >= 0, z3.Int(f"more_{i}") < LARGE) for i in range(buckets)]
    for given, both in paths(
        lambda: (asked.ask(engine), asked.with_more_rows(number).ask(engine)), *legal(asked), *more
    ):
        yield tuple(given), *both


def monotone(engine: Any) -> Obligations:
    for buckets in range(1, BUCKETS + 1):
        for given, less, more in twice(engine, buckets):
            if less is not None:
                better = z3.BoolVal(False) if more is None else term(more) <= term(less)
                yield Obligation(given, better, f"{buckets} buckets")


def no_difference(engine: Any) -> Obligations:
    for given, less, more in twice(engine, 2):
        yield Obligation(given, z3.BoolVal((less is None) == (more is None)))


def on(model: Model) -> Asked:
    """The question with the numbers of a model; what it leaves open is 0."""
    return question(sum(name.startswith("bucket_") for name in model), lambda name: model.get(name, 0), floor=True)


def told(engine: Any, asked: Asked) -> str:
    rows = rows_by_bucket(asked.buckets, asked.rows)
    floor = f", floor {asked.floor}" if asked.floor else ""
    return f"{asked.num_tokens} tokens, {asked.required} rows, captured {rows}{floor}: {asked.ask(engine)}"


def breaks(engine: Any, claim: Claim, model: Model, *, eager: bool | None) -> str:
    """What the engine answers where it breaks the claim, which is about None if eager, None: about any answer."""
    asked = on(model)
    answer = asked.ask(engine)
    if eager is not None and (answer is None) != eager:
        return ""
    numbers = [(z3.Int(name), z3.IntVal(value)) for name, value in model.items()]
    broken = z3.is_false(z3.simplify(z3.substitute(claim(asked, answer), *numbers)))
    return told(engine, asked) if broken else ""


def worse_with_more(engine: Any, model: Model) -> str:
    less, more = both(model)
    before, after = less.ask(engine), more.ask(engine)
    worse = before is not None and (after is None or after > before)
    return f"{told(engine, less)}; {told(engine, more)}" if worse else ""


def changed_by_more(engine: Any, model: Model) -> str:
    less, more = both(model)
    changed = (less.ask(engine) is None) != (more.ask(engine) is None)
    return f"{told(engine, less)}; {told(engine, more)}" if changed else ""


def both(model: Model) -> tuple[Asked, Asked]:
    return on(model), on(model).with_more_rows(lambda name: model.get(name, 0))


def theorem(
    engine: Any, plain: Any, name: str, statement: str, claim: Claim, wrong: str, control: Claim, **eager: bool
) -> Theorem:
    """One promise of the selector; the control promises a word too much."""
    return Theorem(
        name=f"selector-{name}",
        statement=statement + SCOPE,
        claim=partial(selections, engine, claim, **eager),
        confirm=partial(breaks, plain, claim, eager=bool(eager)),
        wrong=wrong,
        control=partial(selections, engine, control, buckets=2, **eager),
        replay=partial(breaks, plain, control, eager=bool(eager)),
        needs="selection",
    )


def floor(engine: Any, plain: Any) -> Theorem:
    return Theorem(
        name="selector-floor",
        statement="With any opt-in floor it answers the smallest captured bucket that holds the tokens and the rows "
        "and has at most twice the tokens, or at most the floor; None if none does (the engine's code, ladders of up "
        f"to {FLOORED} buckets).",
        claim=partial(with_floor, engine, is_right, buckets=FLOORED),
        confirm=partial(breaks, plain, is_right, eager=None),
        wrong="The floor changes nothing.",
        control=partial(with_floor, engine, is_right_without, buckets=1),
        replay=partial(breaks, plain, is_right_without, eager=None),
        needs="selection",
    )


def theorems(engine: Any, plain: Any) -> tuple[Theorem, ...]:
    """engine: finds the helpers; plain: the same as it is, which is asked about the integers that z3 finds."""
    own = partial(theorem, engine, plain)
    return (
        own(
            "fits",
            "The chosen bucket was captured and holds the tokens and the rows",
            lambda asked, bucket: asked.one_is(bucket, asked.fits),
            "It has a row to spare.",
            lambda asked, bucket: asked.one_is(bucket, asked.has_a_row_to_spare),
        ),
        own(
            "padding-bound",
            "The chosen bucket has at most twice as many tokens as the batch",
            lambda asked, bucket: term(bucket) <= 2 * term(asked.num_tokens),
            "It has less than twice as many.",
            lambda asked, bucket: term(bucket) < 2 * term(asked.num_tokens),
        ),
        own(
            "minimal",
            "No smaller captured bucket holds the tokens and the rows",
            lambda asked, bucket: asked.smallest(bucket, asked.fits),
            "No smaller captured bucket holds the tokens.",
            lambda asked, bucket: asked.smallest(bucket, asked.holds_tokens),
        ),
        own(
            "complete",
            "It answers None only if no captured bucket holds the tokens and the rows within the padding bound",
            lambda asked, none: asked.none(lambda at: z3.And(asked.fits(at), asked.bounded(at))),
            "It answers None only if no captured bucket holds the tokens and the rows.",
            lambda asked, none: asked.none(asked.fits),
            eager=True,
        ),
        own(
            "never-eager",
            "If a captured bucket has 1.5 T to 2 T tokens it never answers None for an active batch of T tokens on 2, "
            "4 or 8 ranks",
            never_eager,
            "A bucket of 1.4 T to 2 T is enough (8 ranks).",
            partial(never_eager, percent=140, ranks=(8,)),
            eager=True,
        ),
        *([floor(engine, plain)] if engine.contract.min_replay_bucket else []),
        Theorem(
            name="selector-monotone",
            statement="With more captured rows the choice stays or becomes smaller" + SCOPE,
            claim=partial(monotone, engine),
            confirm=partial(worse_with_more, plain),
            wrong="With more captured rows a batch that ran eager still does.",
            control=partial(no_difference, engine),
            replay=partial(changed_by_more, plain),
            needs="selection",
        ),
    )
