"""Run real functions on integers without a value.

A `Number` is a z3 term with the arithmetic of Python's int. A comparison of two is a `Truth`; where the code asks
which of both it is, the run forks: `paths` runs the function again until every way through it was taken. So the code
itself is executed, on all integers at once, and nothing is transcribed.

The code finds the names of `HELPERS` instead of the built-in ones: `type`, `isinstance` and `int` take a number without
a value for an int, `max` and `min` do not fork, and a `range` may end at one. What a number cannot do as an int does
(be hashed, be divided by what is not positive, meet a fraction) raises, and the proof is undecided.
"""

import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import z3

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """A condition that the code asked. forked: it could be true and false, so what was taken is a condition of the
    way; else what was given decides it."""

    condition: Any
    taken: bool
    forked: bool


@dataclass(frozen=True)
class Way:
    """The first steps of a way, and the values that were guessed there."""

    steps: tuple[Step, ...] = ()
    guessed: tuple[int, ...] = ()


@dataclass
class Run:
    """One way through the code, which begins as `given`; the ways that branch off it are left for later."""

    solver: Any
    given: Way
    steps: list[Step] = field(default_factory=list)
    conditions: list[Any] = field(default_factory=list)  # of the steps that forked
    guessed: list[int] = field(default_factory=list)
    left: list[Way] = field(default_factory=list)
    known: dict[int, Step] = field(default_factory=dict)  # by z3's id; the term keeps its id while it lives

    def decide(self, condition: Any) -> bool:
        """What is asked again is as it was."""
        if condition.get_id() not in self.known:
            self.known[condition.get_id()] = step = self.step(condition)
            self.steps.append(step)
            if step.forked:
                self.conditions.append(condition if step.taken else z3.Not(condition))
                self.solver.add(self.conditions[-1])
        return self.known[condition.get_id()].taken

    def step(self, condition: Any) -> Step:
        """A side of which z3 does not know whether it is possible is taken like one that is."""
        if len(self.steps) == MOST_FORKS:
            raise TooManyWays(f"more than {MOST_FORKS} conditions on one way through the code")
        if len(self.steps) < len(self.given.steps):
            before = self.given.steps[len(self.steps)]
            if condition.get_id() != before.condition.get_id():
                raise NotTheSame(f"asked {condition}, and {before.condition} when it ran before")
            return before
        if self.solver.check(z3.Not(condition)) == z3.unsat:
            return Step(condition, taken=True, forked=False)
        if self.solver.check(condition) == z3.unsat:
            return Step(condition, taken=False, forked=False)
        other = Step(condition, taken=False, forked=True)
        self.left.append(Way((*self.steps, other), tuple(self.guessed)))
        return Step(condition, taken=True, forked=True)

    def guess(self, term: Any) -> int:
        """A value that is possible; on a way that was taken before as far as here, the same as then."""
        if len(self.guessed) < len(self.given.guessed):
            value = self.given.guessed[len(self.guessed)]
        else:
            if self.solver.check() != z3.sat:
                raise TooManyWays(f"no value is known for {term}")
            value = self.solver.model().eval(term, model_completion=True).as_long()
        self.guessed.append(value)
        return value


RUNNING: list[Run] = []
MOST_WAYS, MOST_FORKS = 20_000, 2_000


class TooManyWays(Exception):
    """A function forks so often that its ways cannot all be taken."""


class NothingGiven(Exception):
    """Nothing satisfies what is given: anything could be claimed of it."""


class NotTheSame(Exception):
    """A function that is run again asks something else: it remembers, or it depends on something else."""


class NotAnInt(Exception):
    """A number without a value cannot do what an int does."""


def paths(function: Callable[[], T], *given: Any) -> Iterator[tuple[list[Any], T]]:
    """Every way through `function` that the conditions `given` allow: (conditions of the way, what it returned).

    >>> small = Number(z3.Int("small"))
    >>> sorted(value for _, value in paths(lambda: "negative" if small < 0 else "not", small.term < 9))
    ['negative', 'not']
    """
    waiting, solver = [Way()], z3.SimpleSolver()
    solver.add(*given)
    if solver.check() != z3.sat:
        raise NothingGiven(f"no integers are known to satisfy {z3.And(*given)}")
    for _ in range(MOST_WAYS):
        if not waiting:
            return
        RUNNING.append(run := Run(solver, waiting.pop()))
        solver.push()
        try:
            value = function()
        finally:
            RUNNING.pop()
            solver.pop()
        yield [*given, *run.conditions], value
        waiting.extend(run.left)
    raise TooManyWays(f"more than {MOST_WAYS} ways through the code")


def term(value: Any) -> Any:
    """The z3 term of a number, a truth, an int or a bool."""
    if isinstance(value, Number | Truth):
        return value.term
    if type(value) not in (int, bool):
        raise NotAnInt(f"{value!r} is neither an int nor a bool")
    return z3.BoolVal(value) if value is True or value is False else z3.IntVal(value)


class Truth:
    """A condition; asking whether it holds forks the run."""

    def __init__(self, term: Any) -> None:
        self.term = z3.simplify(term)

    def __bool__(self) -> bool:
        if z3.is_true(self.term) or z3.is_false(self.term):
            return bool(z3.is_true(self.term))
        return RUNNING[-1].decide(self.term)

    def __hash__(self) -> int:
        return hash(bool(self))

    def __eq__(self, other: Any) -> Any:
        return whole(self) == whole(other)

    def __ne__(self, other: Any) -> Any:
        return whole(self) != whole(other)

    def __ge__(self, other: Any) -> Any:
        return whole(self) >= other

    def __le__(self, other: Any) -> Any:
        return whole(self) <= other


class Number:
    """An integer without a value. Its arithmetic and its comparisons are set below."""

    __add__: Callable[..., Any]
    __sub__: Callable[..., Any]
    __floordiv__: Callable[..., Any]
    __mod__: Callable[..., Any]

    def __init__(self, term: Any) -> None:
        self.term = term

    def __repr__(self) -> str:
        return str(self.term)

    def __hash__(self) -> int:
        raise NotAnInt(f"{self} has no hash: equal numbers may be different terms")

    def __bool__(self) -> bool:
        return bool(Truth(self.term != 0))

    def __index__(self) -> int:
        """A place in a list: one fork per value that is possible."""
        while True:
            value = RUNNING[-1].guess(self.term)
            if Truth(self.term == value):
                return value

    __int__ = __index__

    def __neg__(self) -> "Number":
        return Number(-self.term)

    def __divmod__(self, by: Any) -> "tuple[Number, Number]":
        return self // by, self % by


def whole(value: Any) -> Any:
    """A truth as the number that it is, 1 or 0; anything else as it is."""
    return Number(z3.If(value.term, 1, 0)) if isinstance(value, Truth) else value


def arithmetic(combine: Callable[[Any, Any], Any], *, turned: bool = False) -> Callable[..., Any]:
    def operator(self: Number, other: Any) -> Any:
        if not isinstance(other, int | Number | Truth):
            return NotImplemented
        mine, theirs = self.term, term(whole(int(other) if isinstance(other, bool) else other))
        return Number(combine(theirs, mine) if turned else combine(mine, theirs))

    return operator


def comparison(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operator(self: Number, other: Any) -> Any:
        if isinstance(other, bool) or (isinstance(other, float) and other.is_integer()):
            other = int(other)
        if not isinstance(other, int | Number | Truth):
            return NotImplemented
        return Truth(compare(self.term, term(whole(other))))

    return operator


def divisor(by: Any) -> Any:
    """Where it is positive z3 and Python divide alike."""
    if not Truth(by > 0):
        raise NotAnInt(f"divided by {by}, which may be 0 or negative")
    return by


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a / divisor(b),
    "mod": lambda a, b: a % divisor(b),
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
for name, combine in ARITHMETIC.items():
    setattr(Number, f"__{name}__", arithmetic(combine))
    setattr(Number, f"__r{name}__", arithmetic(combine, turned=True))
for name, compare in COMPARISONS.items():
    setattr(Number, f"__{name}__", comparison(compare))


@dataclass(frozen=True)
class Span:
    """A range whose ends have no value; only its length can be asked for."""

    start: Any
    stop: Any

    @property
    def length(self) -> Any:
        return self.stop - self.start


class IntLike(type):
    """Makes a class equal to int wherever classes are compared, such as the annotations of a module."""

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is int

    def __hash__(cls) -> int:
        return hash(int)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int | Number | Truth)


class Int(metaclass=IntLike):
    """`int`, for which a number without a value is whole already, and a truth is 1 or 0."""

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        return whole(value) if isinstance(value, Number | Truth) else int(value, *base)


class Share:
    """A float ratio without a value. Its product with a number, once that is cut to an int, is any whole number that
    depends on that number alone: nothing is said about rounding."""

    product = z3.Function("product", z3.IntSort(), z3.IntSort())

    def __rmul__(self, number: Number) -> Number:
        return Number(self.product(number.term))

    def __ge__(self, least: float) -> bool:
        return True

    def __le__(self, most: float) -> bool:
        return True


STAND_FOR = {Number: Int, Truth: bool, Share: float, int: Int}
EXAMPLES = {Number: 0, Truth: False, Share: 0.5}


def kind(value: Any) -> Any:
    """`type`, for which what has no value is of the type that it stands for."""
    own = builtins.type(value)
    return STAND_FOR.get(own, own)


def is_a(value: Any, classes: Any) -> bool:
    """`isinstance`, likewise."""
    return isinstance(EXAMPLES.get(builtins.type(value), value), classes)


def span(*ends: Any) -> Any:
    return Span(*ends) if any(isinstance(end, Number) for end in ends) else range(*ends)


def merging(choose: Callable[..., Any], first_wins: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`max` or `min` as one term instead of a fork per comparison."""

    def merged(*values: Any, **options: Any) -> Any:
        several = list(values[0] if len(values) == 1 else values)
        kinds = {*map(type, several)}
        if options or Number not in kinds or not kinds <= {int, Number}:
            return choose(several, **options)
        best = term(several[0])
        for value in map(term, several[1:]):
            best = z3.If(first_wins(best, value), best, value)
        return Number(best)

    return merged


HELPERS = {"type": kind, "isinstance": is_a, "int": Int, "range": span}
HELPERS |= {"max": merging(max, lambda a, b: a >= b), "min": merging(min, lambda a, b: a <= b)}


def number(name: str) -> Number:
    return Number(z3.Int(name))


def truth(name: str) -> Truth:
    return Truth(z3.Bool(name))


class Table(Mapping[Any, Any]):
    """A dict whose keys have no value: they are distinct, and found by comparing them."""

    def __init__(self, pairs: Any) -> None:
        self.pairs = list(pairs)

    def __getitem__(self, key: Any) -> Any:
        for own, value in [*[pair for pair in self.pairs if pair[0] is key], *self.pairs]:
            if own is key or own == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)
