"""Theorems about an engine's selector: its own function, executed on ladders of up to 8 buckets without a value."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import z3

from cpbcg_ref.proving.model import Obligation, Theorem
from cpbcg_ref.proving.symbolic import number, paths, term

BUCKETS = 8
LARGE = 10**300  # a float holds it; larger numbers may be refused
Model = dict[str, int]
Obligations = Iterable[Obligation]
Claim = Callable[["Asked", Any], Any]  # of the question and the chosen bucket
SCOPE = f" (the engine's code, ladders of up to {BUCKETS} buckets)."


@dataclass(frozen=True)
class Asked:
    """A captured ladder, the rows of its buckets, a batch's tokens, and the rows that it needs."""

    buckets: list[Any]
    rows: list[Any]
    num_tokens: Any
    required: Any

    def ask(self, engine: Any) -> Any:
        return engine.select_replay_bucket(
            num_tokens=self.num_tokens,
            required_local_tokens=self.required,
            capture_num_tokens=list(self.buckets),
            bucket_local_tokens=dict(zip(self.buckets, self.rows, strict=True)),
            max_padding_factor=2,
            min_replay_bucket=0,
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

    def one_is(self, bucket: Any, rule: Callable[[int], Any]) -> Any:
        """It is one of the buckets for which the rule holds."""
        return z3.Or(*[z3.And(term(own) == term(bucket), rule(at)) for at, own in enumerate(self.buckets)])

    def smallest(self, bucket: Any, rule: Callable[[int], Any]) -> Any:
        """No bucket for which the rule holds is smaller."""
        return z3.And(*[z3.Implies(rule(at), term(bucket) <= term(own)) for at, own in enumerate(self.buckets)])

    def none(self, rule: Callable[[int], Any]) -> Any:
        return z3.Not(z3.Or(*map(rule, range(len(self.buckets)))))


def question(buckets: int, make: Callable[[str], Any] = number) -> Asked:
    sizes, rows = ([make(f"{name}_{i}") for i in range(buckets)] for name in ("bucket", "rows"))
    return Asked(sizes, rows, make("num_tokens"), make("required_local_tokens"))


def legal(asked: Asked) -> list[Any]:
    """An ascending ladder, a batch with tokens."""
    numbers = [term(one) for one in (*asked.buckets, *asked.rows, asked.num_tokens, asked.required)]
    ascending = [term(low) < term(high) for low, high in pairwise(asked.buckets)]
    sizes = [term(asked.buckets[0]) >= 1, term(asked.num_tokens) >= 1]
    return [*sizes, *ascending, *[z3.And(one >= 0, one < LARGE) for one in numbers]]


def selections(engine: Any, claim: Claim, *, eager: bool = False, buckets: int = BUCKETS) -> Iterator[Obligation]:
    """The claim about every bucket that the engine chooses, or about every batch for which it chooses none."""
    for asked in map(question, range(1, buckets + 1)):
        for given, answer in paths(partial(asked.ask, engine), *legal(asked)):
            if (answer is None) == eager:
                yield Obligation(tuple(given), claim(asked, answer), f"{len(asked.buckets)} buckets")


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
    return question(sum(name.startswith("bucket_") for name in model), lambda name: model.get(name, 0))


def told(engine: Any, asked: Asked) -> str:
    rows = dict(zip(asked.buckets, asked.rows, strict=True))
    return f"{asked.num_tokens} tokens, {asked.required} rows, captured {rows}: {asked.ask(engine)}"


def breaks(engine: Any, claim: Claim, model: Model, *, eager: bool) -> str:
    """What the engine answers where it breaks the claim."""
    asked = on(model)
    answer = asked.ask(engine)
    holds = (answer is None) != eager or z3.is_true(z3.simplify(claim(asked, answer)))
    return "" if holds else told(engine, asked)


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


def theorem(engine: Any, name: str, statement: str, claim: Claim, wrong: str, control: Claim, **eager: bool) -> Theorem:
    """One promise of the selector; the control promises a word too much."""
    return Theorem(
        name=f"selector-{name}",
        statement=statement + SCOPE,
        claim=partial(selections, engine, claim, **eager),
        confirm=partial(breaks, engine, claim, eager=bool(eager)),
        wrong=wrong,
        control=partial(selections, engine, control, buckets=2, **eager),
        replay=partial(breaks, engine, control, eager=bool(eager)),
        needs="selection",
    )


def theorems(engine: Any) -> tuple[Theorem, ...]:
    own = partial(theorem, engine)
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
        Theorem(
            name="selector-monotone",
            statement="With more captured rows the choice stays or becomes smaller" + SCOPE,
            claim=partial(monotone, engine),
            confirm=partial(worse_with_more, engine),
            wrong="With more captured rows a batch that ran eager still does.",
            control=partial(no_difference, engine),
            replay=partial(changed_by_more, engine),
            needs="selection",
        ),
    )
