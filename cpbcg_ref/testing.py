"""The suite as a test of your own: one call, or one test per invariant.

    from cpbcg_ref.testing import run_conformance

    def test_my_engine_conforms():
        run_conformance(Engine())

Everything happens in the calling thread, where an engine may have put its state, and with plain exceptions, so pytest,
unittest and a script read it alike. No pytest plugin is involved: nothing is loaded in test runs that do not call it.
"""

import io
import shlex
import unittest
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cpbcg_ref.cases import Deployment
from cpbcg_ref.checking.declared import wrong_attribute
from cpbcg_ref.checking.deployment import read_deployment
from cpbcg_ref.checking.known import KnownFailure, read_known_failures
from cpbcg_ref.checking.profiles import PROFILES
from cpbcg_ref.checking.results import Report, Result
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.session import check_here
from cpbcg_ref.checking.size import as_python
from cpbcg_ref.engines.targets import declared, resolve
from cpbcg_ref.errors import InvalidInput, TargetError
from cpbcg_ref.invariants import REGISTRY, ids_like
from cpbcg_ref.report import terminal

__all__ = ["ConformanceWarning", "NotConformant", "conformance_tests", "run_conformance"]


class NotConformant(AssertionError):
    """The engine breaks an invariant, or was not judged where it had to be. `report` holds every verdict."""

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:  # test runners send it from process to process
        return type(self), (str(self), self.report)


class ConformanceWarning(UserWarning):
    """What no test fails for: a violated SHOULD, and invariants that were not asked, with the reason."""


def run_conformance(
    engine: Any,
    *,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    known_failures: Path | str | None = None,
    profile: str = "ci",
    seed: int = 0,
    strict: bool = False,
    deployment: Deployment | Path | str | None = None,
) -> Report:
    """Put the suite to an engine; raises NotConformant if `cpbcg check` would not exit 0.

    engine: an adapter object, see `cpbcg_ref/engines/contract.py`, or a target such as "sglang==0.5.23".
    select, exclude: ids or patterns ("layout.*"), as a string or several; without `select` every invariant.
    known_failures: path of a TOML file, see `cpbcg_ref/checking/known.py`. profile: "dev", "ci" or "nightly". seed: the
    same seed, the same verdicts. strict: a violated SHOULD counts too. deployment: path of a TOML file, see
    `cpbcg_ref/checking/deployment.py`, or a `cases.Deployment`.

    A violated MUST that is not known, an error, an interesting case that never came up, a known failure that no longer
    fails, and an engine of which nothing could be asked: all of them raise, with sentence, picture, smallest case and
    the line that reproduces it. What was not asked is a ConformanceWarning unless it is excluded. Raises InvalidInput
    for a wrong option and TargetError for a target that cannot be obtained.

    >>> from cpbcg_ref.engines.reference import Reference
    >>> report = run_conformance(Reference(), select="capacity.*", profile="dev")
    >>> [(result.invariant, result.outcome) for result in report.results]
    [('capacity.required', 'pass'), ('capacity.no-overflow', 'pass')]
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    how: dict[str, Any] = {"known_failures": known_failures, "profile": profile, "seed": seed, "strict": strict}
    suite = suite_of(engine, select=select, exclude=exclude, deployment=deployment, **how)
    return suite.judge(suite.ids)


def conformance_tests(engine: Any, **options: Any) -> list[Callable[[], Result]]:
    """One test per invariant, each named after its id; the options are those of `run_conformance`.

    A test raises NotConformant, or unittest.SkipTest, which pytest knows too, where the engine cannot be asked. They
    share the engine's answers, so on several workers keep them together: `pytest -n 2 --dist loadfile`.

        @pytest.mark.parametrize("test", conformance_tests(Engine()))
        def test_my_engine(test):
            test()

    >>> [test.__name__ for test in conformance_tests("reference", select="capacity.*")]
    ['capacity.required', 'capacity.no-overflow']
    """
    suite = suite_of(engine, **options)
    return [named(one, partial(suite.judge_one, one)) for one in suite.ids]


def named(name: str, test: Any) -> Callable[[], Result]:
    test.__name__ = name
    return test  # type: ignore[no-any-return]


@dataclass(kw_only=True)
class Suite:
    """An engine and how it is asked. The engine is loaded and the files are read when the first test runs."""

    engine: Any
    ids: Sequence[str]
    known_failures: Path | str | None = None
    profile: str = "ci"
    seed: int = 0
    strict: bool = False
    deployment: Deployment | Path | str | None = None

    @cached_property
    def known(self) -> Sequence[KnownFailure]:
        return read_known_failures(Path(self.known_failures)) if self.known_failures else ()

    @cached_property
    def checker(self) -> Checker:
        target, asked = name_of(self.engine), self.deployment
        engine = resolve(target) if target == self.engine else usable(target, self.engine)
        told: dict[str, Any] = {"engine": engine, "target": target, "profile": self.profile, "seed": self.seed}
        told["deployment"] = read_deployment(Path(asked)) if isinstance(asked, (str, Path)) else asked
        told["reproduce"] = f" --config {shlex.quote(str(asked))}" if asked else ""
        # Nothing is recorded: that would end the profiler of whoever is profiling this test.
        return Checker(recorded=0, **told)

    def judge_one(self, name: str) -> Result:
        __tracebackhide__ = True
        result = self.report([name]).results[0]
        if result.outcome == "skip" or result.known:
            known = f"known failure: {result.reason} ({result.link}): " if result.known else ""
            raise unittest.SkipTest(known + result.message)
        return self.judge([name]).results[0]

    def judge(self, ids: Sequence[str]) -> Report:
        __tracebackhide__ = True
        report = self.report(ids)
        if report.exit_code or len(report.of("skip")) == len(ids):
            raise NotConformant(text(report), report)
        if told := advice(report):
            warnings.warn(told, ConformanceWarning, stacklevel=3)
        return report

    def report(self, ids: Sequence[str]) -> Report:
        how: dict[str, Any] = {"known_failures": self.known, "among": self.ids}
        report = check_here(self.checker, ids, **how)
        return replace(report, strict=self.strict, results=tuple(map(self.reproducible, report.results)))

    def reproducible(self, result: Result) -> Result:
        """The line to type: a command knows no object."""
        if not result.reproduce or (isinstance(self.engine, str) and not isinstance(self.deployment, Deployment)):
            return result
        how = f"select={result.invariant!r}, profile={self.profile!r}, seed={self.seed}"
        asked = as_python(self.deployment) if isinstance(self.deployment, Deployment) else repr(str(self.deployment))
        how += f", deployment={asked}" if self.deployment else ""
        engine = repr(self.engine) if isinstance(self.engine, str) else "engine"
        return replace(result, reproduce=f"run_conformance({engine}, {how})")


def suite_of(engine: Any, *, select: str | Iterable[str] = (), exclude: str | Iterable[str] = (), **how: Any) -> Suite:
    wanted, unwanted = ([ids] if isinstance(ids, str) else list(ids) for ids in (select, exclude))
    left_out = set(ids_like(unwanted))
    ids = [one for one in (ids_like(wanted) if wanted else REGISTRY) if one not in left_out]
    suite = Suite(engine=engine, ids=ids, **how)
    if not ids:
        raise InvalidInput(f"nothing is left to check: select {wanted or 'everything'}, exclude {unwanted}")
    if suite.profile not in PROFILES:
        raise InvalidInput(f"profile is {suite.profile!r}: it is one of {', '.join(PROFILES)}")
    return suite


def name_of(engine: Any) -> str:
    """A target as it is; for an object, where its class is."""
    return engine if isinstance(engine, str) else f"{type(engine).__module__}:{type(engine).__qualname__}"


def usable(target: str, engine: Any) -> Any:
    """The object, if it is an adapter that can be asked."""
    if isinstance(engine, type):
        raise TargetError(f"{engine.__name__} is a class: pass an object of it, {engine.__name__}()")
    if problem := wrong_attribute(declared(target, engine)):
        raise TargetError(f"{target!r}: {problem}")
    return engine


def text(report: Report) -> str:
    """What `cpbcg check` prints of its findings, the summary first: it is all that a list of failed tests shows."""
    asked = "" if len(report.of("skip")) < len(report.results) else ": nothing could be asked"
    return printed(report, asked, lambda printer: terminal.show_findings(report, printer))


def advice(report: Report) -> str:
    """What fails no test, "" if there is none: violated SHOULDs, and what was not judged, with the reasons."""
    violated = "".join(f"\nADVICE {one.invariant}: {one.message}" for one in report.of("fail") if not one.known)
    if not violated and not report.of("skip") and not report.of("unwitnessed"):
        return ""
    return printed(report, violated, lambda printer: terminal.show_reasons(printer, report)).rstrip()


def printed(report: Report, more: str, how: Callable[[terminal.Printer], None]) -> str:
    stream = io.StringIO()
    how(terminal.Printer(stream))
    return f"{terminal.summary_line(report)}{more}\n{stream.getvalue()}"
