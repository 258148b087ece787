"""SGLang's prefill delayer: the release's own file, executed for every virtual rank, one pass after the other.

Supplied from outside: the collective, the clock, and the process-wide configuration. Everything else is the engine's.
In a pass every rank runs twice: a copy of its delayer up to the gather, to hand in a tensor, and then the delayer
itself, which receives those of all ranks.
"""

import copy
import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from cpbcg_ref.answers import Raised, Verdict
from cpbcg_ref.asking import answered
from cpbcg_ref.cases import DelayerConfig, RankReport
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.sglang_attempts import start_attempts
from cpbcg_ref.engines.sglang_process import SRT, SUPPORTED
from cpbcg_ref.errors import TargetError

__all__ = ["start_attempts", "start_delayers", "unavailable"]

DELAYER = SRT + "managers.prefill_delayer"
GROUP = "the process group of all ranks"
_here = SimpleNamespace()  # what the rank that runs now sees: now, process, gather


class CollectiveFailed(Exception):
    """What a rank gets from a gather that would hang or break on real hardware."""


class HandedIn(BaseException):
    """Ends the first run of a rank: it has arrived at the gather."""


class Seconds(float):
    """A clock reading in seconds that keeps its milliseconds, so that the engine's `(now - start) * 1000.0` is exactly
    now_ms - start_ms: a rounding error of the virtual clock must not decide whether a limit of 1001 ms has run out."""

    ms: float

    def __new__(cls, ms: float) -> "Seconds":
        self = super().__new__(cls, ms / 1000)
        self.ms = ms
        return self

    def __sub__(self, other: float) -> float:
        return Seconds(self.ms - other.ms) if isinstance(other, Seconds) else float(self) - other

    def __mul__(self, factor: float) -> float:
        return self.ms * (factor / 1000.0)


def start_delayers(root: Path, config: DelayerConfig) -> "Delayers":
    """Fresh delayers of the release below `root`, one for each DP rank.

    Raises TargetError if the release has none or needs something that this adapter does not know.
    """
    return Delayers(delayer_tree(root), config)


def unavailable(root: Path) -> dict[str, str]:
    """Why negotiation or attempts cannot be asked of this release: {capability: reason}, empty if both can."""
    config = DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=1)
    reasons = {}
    for name, start, args in (("negotiation", start_delayers, (root, config)), ("attempts", start_attempts, (root,))):
        try:
            start(*args)
        except TargetError as error:
            reasons[name] = str(error)
    return reasons


@functools.cache
def delayer_tree(root: Path) -> Hermetic:
    """A tree of its own: only this file may see the virtual clock, and it must before the class is made."""
    import torch

    def now() -> Any:
        return _here.now

    def all_gather(output: Any, contribution: Any, group: str) -> None:
        assert group == GROUP
        _here.gather(output, contribution)

    clock = SimpleNamespace(perf_counter=now, monotonic=now, time=now)
    own_torch = ModuleType("torch")
    vars(own_torch).update(vars(torch), distributed=SimpleNamespace(all_gather_into_tensor=all_gather))
    tree = Hermetic(root, "sglang", [DELAYER], replaced={"time": clock, "torch": own_torch}, supported=SUPPORTED)
    tree.provide(SRT + "distributed.utils", all_gather_single=all_gather)
    tree.provide(SRT + "runtime_context", get_parallel=lambda: _here.process, get_schedule=lambda: _here.process)
    tree.symbol(DELAYER, "PrefillDelayerSinglePassExecutor.negotiate_should_allow_prefill")
    return tree


class Delayers:
    """The delayers of one engine. `step` runs one scheduler pass on all ranks."""

    def __init__(self, tree: Hermetic, config: DelayerConfig) -> None:
        self.roots = (str(tree.root / tree.package),)
        self._together = config.enable_dp_attention
        self._ranks = [Rank(tree, config) for _ in range(config.dp_size)]

    def step(self, reports: Sequence[RankReport]) -> list[Verdict | Raised]:
        """The verdict of every rank. Without DP attention each one is a replica that gathers from nobody else."""
        if self._together:
            return self._gather_and_run(list(zip(self._ranks, reports, strict=True)))
        replicas = zip(self._ranks, reports, strict=False)
        return [answer for replica in replicas for answer in self._gather_and_run([replica])]

    def _gather_and_run(self, group: list[tuple["Rank", RankReport]]) -> list[Verdict | Raised]:
        gathered = join([rank.contribution(report) for rank, report in group])
        return [self._answer(rank, report, gathered) for rank, report in group]

    def _answer(self, rank: "Rank", report: RankReport, gathered: Any) -> Any:
        try:
            return answered(self, rank.step, report, gathered)
        except CollectiveFailed as error:  # raised here, but where the engine gathers
            frame = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(self.roots)][
                -1
            ]
            return Raised("CollectiveFailed", str(error), f"{Path(frame.filename).name}:{frame.lineno}")


def join(contributions: list[Any]) -> Any:
    """One tensor of all that was handed in, or the error that every rank gets from its gather."""
    import torch

    absent = [str(rank) for rank, contribution in enumerate(contributions) if contribution is None]
    if absent:
        return CollectiveFailed(f"rank {', '.join(absent)} never joins this gather")
    return torch.cat([contribution.flatten() for contribution in contributions])


class Rank:
    """One rank: its delayer object and its process-wide state."""

    def __init__(self, tree: Hermetic, config: DelayerConfig) -> None:
        self._executor = tree.load(DELAYER).PrefillDelayerSinglePassExecutor
        self._process = process_state(config)
        self._enter(0.0, None)
        self._delayer = construct(tree, vars(self._process))

    def _enter(self, now_ms: float, gather: Callable[[Any, Any], None] | None) -> None:
        _here.now, _here.process, _here.gather = Seconds(now_ms), self._process, gather

    def contribution(self, report: RankReport) -> Any:
        """The tensor that this rank hands in, None if it ends without a gather."""
        handed_in: list[Any] = [None]

        def gather(output: Any, contribution: Any) -> None:
            handed_in[0] = contribution
            raise HandedIn

        with suppress(Exception, HandedIn):  # an error comes again in `step`
            self._run(copy.deepcopy(self._delayer), report, gather)
        return handed_in[0]

    def step(self, report: RankReport, gathered: Any) -> Verdict:
        unread = [gathered]

        def gather(output: Any, contribution: Any) -> None:
            given = unread.pop() if unread else CollectiveFailed("this rank gathers a second time in the same pass")
            if isinstance(given, CollectiveFailed):
                raise given
            if output.numel() != given.numel():
                raise CollectiveFailed(f"{given.numel()} values do not fit a buffer of {output.numel()}")
            output.copy_(given.view_as(output))

        result = self._run(self._delayer, report, gather)
        state = self._delayer._curr_state
        return Verdict(
            allow=bool(result.output_allow),
            reason=result.output_reason,
            wait_passes=result.wait_forward_passes,
            episode_open=state is not None,
            delayed_passes=state.delayed_count if state is not None else 0,
            free_pass_used=not self._delayer.skip_first_delayer,
        )

    def _run(self, delayer: Any, report: RankReport, gather: Callable[[Any, Any], None]) -> Any:
        self._enter(report.now_ms, gather)
        executor = self._executor(delayer, token_usage=report.token_usage)
        if report.prefillable:  # a rank with nothing to prefill is asked by `finalize` alone
            executor.negotiate_should_allow_prefill(
                local_prefillable=True,
                running_batch=report.running_batch,
                max_prefill_bs=report.max_prefill_bs,
                max_running_requests=self._process.max_running_requests,
                waiting_queue_len=report.waiting_queue_len,
            )
        ran = int(report.prefillable and executor._result.output_allow)
        executor.finalize(**dict.fromkeys(required(executor.finalize), ran))
        return executor._result


def process_state(config: DelayerConfig) -> SimpleNamespace:
    """What a rank finds in its schedule, its server arguments and so on, under the names of every release."""
    state = SimpleNamespace(
        **asdict(config),
        num_dp_ranks=config.dp_size,
        attn_dp_enabled=config.enable_dp_attention,
        attn_tp_size=1,
        attn_cp_size=1,
        prefill_delayer_queue_min_ratio=config.queue_min_ratio,
        prefill_delayer_max_delay_ms=config.max_delay_ms,
        disable_overlap_schedule=False,
        cpu_group=GROUP,
        tp_group=SimpleNamespace(cpu_group=GROUP, device_group=GROUP, device="cpu"),
    )
    state.server_args = state
    return state


def construct(tree: Hermetic, known: dict[str, Any]) -> Any:
    delayer = tree.symbol(DELAYER, "PrefillDelayer")
    wanted = required(delayer)
    unknown = [name for name in wanted if name not in known]
    try:
        if unknown:
            raise TypeError(f"it wants {', '.join(unknown)}, which this adapter does not know")
        return delayer(**{name: known[name] for name in wanted})
    except (AttributeError, TypeError) as error:
        file = tree.load(DELAYER).__file__
        raise TargetError(f"PrefillDelayer in {file}: {error}; supported: sglang {tree.supported}") from error


def required(function: Any) -> list[str]:
    parameters: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]
