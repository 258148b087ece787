"""Run real functions on integers without a value.

A `Number` is a z3 term with the arithmetic of Python's int. A comparison of two is a `Truth`; where the code asks
which of both it is, the run forks: `paths` runs the function again until every way through it was taken. So the code
itself is executed, on all integers at once, and nothing is transcribed.

The code finds the names of `HELPERS` instead of the built-in ones: `type` and `int` take a number without a value for
an int, `max` and `min` do not fork, and a `range` may end at one.
"""

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import z3

T = TypeVar("T")


@dataclass
class Run:
    """One way through the code: what was decided at the forks, and the ways that were left for later."""

    solver: Any
    forced: list[bool]
    decided: list[bool] = field(default_factory=list)
    left: list[list[bool]] = field(default_factory=list)
    known: dict[int, tuple[bool, Any]] = field(default_factory=dict)  # by z3's id; the term keeps its id while it lives

    def decide(self, condition: Any) -> bool:
        """What is asked again is as it was."""
        if condition.get_id() not in self.known:
            self.known[condition.get_id()] = (self.choose(condition), condition)
        return self.known[condition.get_id()][0]

    def choose(self, condition: Any) -> bool:
        if len(self.decided) == MOST_FORKS:
            raise TooManyWays(f"more than {MOST_FORKS} forks on one way through the code")
        if len(self.decided) < len(self.forced):
            chosen = self.forced[len(self.decided)]
        else:
            chosen = self.solver.check(condition) == z3.sat
            if chosen and self.solver.check(z3.Not(condition)) == z3.sat:
                self.left.append([*self.decided, False])
        self.decided.append(chosen)
        self.solver.add(condition if chosen else z3.Not(condition))
        return chosen


RUNNING: list[Run] = []
MOST_WAYS, MOST_FORKS = 20_000, 2_000


class TooManyWays(Exception):
    """A function forks so often that its ways cannot all be taken."""


def paths(function: Callable[[], T], *given: Any) -> Iterator[tuple[list[Any], T]]:
    """Every way through `function` that the conditions `given` allow: (conditions of the way, what it returned).

    >>> small = Number(z3.Int("small"))
    >>> sorted(value for _, value in paths(lambda: "negative" if small < 0 else "not", small.term < 9))
    ['negative', 'not']
    """
    waiting: list[list[bool]] = [[]]
    for _ in range(MOST_WAYS):
        if not waiting:
            return
        solver = z3.SimpleSolver()
        solver.add(*given)
        RUNNING.append(run := Run(solver, waiting.pop()))
        try:
            value = function()
        finally:
            RUNNING.pop()
        yield list(solver.assertions()), value
        waiting.extend(run.left)
    raise TooManyWays(f"more than {MOST_WAYS} ways through the code")


def term(value: Any) -> Any:
    """The z3 term of a number, a truth, an int or a bool."""
    if isinstance(value, Number | Truth):
        return value.term
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


class Truth:
    """A condition; asking whether it holds forks the run."""

    def __init__(self, term: Any) -> None:
        self.term = z3.simplify(term)

    def __bool__(self) -> bool:
        if z3.is_true(self.term) or z3.is_false(self.term):
            return bool(z3.is_true(self.term))
        return RUNNING[-1].decide(self.term)

    def __ge__(self, other: Any) -> Any:
        return Number(z3.If(self.term, 1, 0)) >= other

    def __le__(self, other: Any) -> Any:
        return Number(z3.If(self.term, 1, 0)) <= other


class Number:
    """An integer without a value. Its arithmetic and its comparisons are set below.

    Divisors must be positive: there z3 and Python divide alike.
    """

    __add__: Callable[..., Any]
    __sub__: Callable[..., Any]
    __floordiv__: Callable[..., Any]
    __mod__: Callable[..., Any]

    def __init__(self, term: Any) -> None:
        self.term = term

    def __repr__(self) -> str:
        return str(self.term)

    def __hash__(self) -> int:
        return 0  # equal numbers may be different terms: a set compares them all

    def __bool__(self) -> bool:
        return bool(Truth(self.term != 0))

    def __index__(self) -> int:
        """A place in a list: one fork per value that is possible."""
        while True:
            RUNNING[-1].solver.check()
            value: int = RUNNING[-1].solver.model().eval(self.term, model_completion=True).as_long()
            if Truth(self.term == value):
                return value

    __int__ = __index__

    def __neg__(self) -> "Number":
        return Number(-self.term)

    def __divmod__(self, by: Any) -> "tuple[Number, Number]":
        return self // by, self % by


def arithmetic(combine: Callable[[Any, Any], Any], *, turned: bool = False) -> Callable[..., Any]:
    def operator(self: Number, other: Any) -> Any:
        if not isinstance(other, int | Number):
            return NotImplemented
        return Number(combine(term(other), self.term) if turned else combine(self.term, term(other)))

    return operator


def comparison(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operator(self: Number, other: Any) -> Any:
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        return Truth(compare(self.term, term(other))) if isinstance(other, int | Number) else NotImplemented

    return operator


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
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


class Int(metaclass=IntLike):
    """`int`, for which a number without a value is whole already, and a truth is 1 or 0."""

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        if isinstance(value, Truth):
            return Number(z3.If(value.term, 1, 0))
        return value if isinstance(value, Number) else int(value, *base)


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


def kind(value: Any) -> Any:
    """`type`, for which what has no value is of the type that it stands for."""
    own = builtins.type(value)
    return STAND_FOR.get(own, own)


def span(*ends: Any) -> Any:
    return Span(*ends) if any(isinstance(end, Number) for end in ends) else range(*ends)


def merging(choose: Callable[..., Any], first_wins: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`max` or `min` as one term instead of a fork per comparison."""

    def merged(*values: Any, **options: Any) -> Any:
        several = list(values[0] if len(values) == 1 else values)
        if options or not any(isinstance(value, Number) for value in several):
            return choose(several, **options)
        best = term(several[0])
        for value in map(term, several[1:]):
            best = z3.If(first_wins(best, value), best, value)
        return Number(best)

    return merged


HELPERS = {"type": kind, "int": Int, "range": span}
HELPERS |= {"max": merging(max, lambda a, b: a >= b), "min": merging(min, lambda a, b: a <= b)}


def number(name: str) -> Number:
    return Number(z3.Int(name))


def truth(name: str) -> Truth:
    return Truth(z3.Bool(name))
