"""SGLang's prefill delayer: the release's own file, executed once per virtual rank and pass.

Supplied from outside: the collective, the clock, and the process-wide configuration. Everything else is the engine's.
"""

import functools
import inspect
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpbcg_ref.answers import Raised, Verdict
from cpbcg_ref.asking import raised_by_engine
from cpbcg_ref.cases import DelayerConfig, RankReport
from cpbcg_ref.engines import sglang_attempts
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.lockstep import CollectiveFailed, Rank, lockstep
from cpbcg_ref.engines.sglang_attempts import start_attempts
from cpbcg_ref.errors import TargetError

__all__ = ["start_attempts", "start_delayers", "unavailable"]

DELAYER = "sglang.srt.managers.prefill_delayer"
_here = threading.local()  # what the rank that runs in this thread sees: now, parallel, schedule


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


class _Torch:
    """torch, but gathers go to the rank that was handed over as the process group."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self.distributed = SimpleNamespace(all_gather_into_tensor=all_gather)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def all_gather(output: Any, contribution: Any, group: "Group") -> None:
    group.rank.all_gather(output, contribution)


class Group:
    """Stands for the process group that one rank hands to its collective."""

    rank: Rank


def start_delayers(modules: Hermetic, config: DelayerConfig) -> "Delayers":
    """Fresh delayers of the release that lies under `modules.root`, one for each DP rank.

    Raises TargetError if the release has none or needs something that this adapter does not know.
    """
    return Delayers(delayer_tree(modules.root, modules.supported), config)


def unavailable(modules: Hermetic) -> dict[str, str]:
    """Why negotiation or attempts cannot be asked of this release: {capability: reason}, empty if both can."""
    config = DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=1)
    probes: dict[str, Callable[[], object]] = {
        "negotiation": lambda: start_delayers(modules, config),
        "attempts": lambda: sglang_attempts.start_attempts(modules),
    }
    return {name: reason for name, probe in probes.items() if (reason := _failure(probe))}


def _failure(probe: Callable[[], object]) -> str:
    try:
        probe()
    except TargetError as error:
        return str(error)
    return ""


@functools.cache
def delayer_tree(root: Path, supported: str) -> Hermetic:
    """A tree of its own: only this file may see the virtual clock, and it must before the class is made."""
    clock = SimpleNamespace(perf_counter=_now, monotonic=_now, time=_now)
    replaced = {"time": clock, "torch": _Torch()}
    tree = Hermetic(root, "sglang", [DELAYER], replaced=replaced, supported=supported)
    tree.provide("sglang.srt.distributed.utils", all_gather_single=all_gather)
    tree.provide("sglang.srt.runtime_context", get_parallel=lambda: _here.parallel, get_schedule=lambda: _here.schedule)
    for symbol in ("PrefillDelayer", "PrefillDelayerSinglePassExecutor.negotiate_should_allow_prefill"):
        tree.symbol(DELAYER, symbol)
    return tree


def _now() -> float:
    now: float = _here.now
    return now


class Delayers:
    """The delayers of one engine. `step` runs one scheduler pass on all ranks."""

    def __init__(self, tree: Hermetic, config: DelayerConfig) -> None:
        self._tree, self._config = tree, config
        self._seats = [_Seat(tree, config) for _ in range(config.dp_size)]

    def step(self, reports: Sequence[RankReport]) -> list[Verdict | Raised]:
        """The verdict of every rank. Without DP attention each one is a replica that gathers from nobody else."""
        together = self._config.enable_dp_attention
        seats = self._seats if together else self._seats[: len(reports)]
        work = [functools.partial(seat.step, report) for seat, report in zip(seats, reports, strict=True)]
        groups = [work] if together else [[one] for one in work]
        return [self._answer(rank) for group in groups for rank in lockstep(group, _join)]

    def _answer(self, rank: Rank) -> Verdict | Raised:
        if rank.error is None:
            verdict: Verdict = rank.result
            return verdict
        root = str(self._tree.root / self._tree.package)
        if isinstance(rank.error, CollectiveFailed):
            return Raised("CollectiveFailed", str(rank.error), _line(rank.error, root))
        raised = raised_by_engine(SimpleNamespace(roots=(root,)), rank.error)
        if raised is None or not isinstance(rank.error, Exception):
            raise rank.error
        return raised


class _Seat:
    """One rank: its delayer object, its process group, its process-wide state."""

    def __init__(self, tree: Hermetic, config: DelayerConfig) -> None:
        self._executor, self._config = tree.load(DELAYER).PrefillDelayerSinglePassExecutor, config
        self._group, self._schedule = Group(), schedule(config)
        self._parallel = parallel(config, self._group)
        self._enter(0.0)
        self._delayer = _construct(tree, options(config, self._group, self._schedule))

    def _enter(self, now_ms: float) -> None:
        _here.now, _here.parallel, _here.schedule = Seconds(now_ms), self._parallel, self._schedule

    def step(self, report: RankReport, rank: Rank) -> Verdict:
        self._enter(report.now_ms)
        self._group.rank = rank
        executor = self._executor(self._delayer, token_usage=report.token_usage)
        if report.prefillable:  # a rank with nothing to prefill is asked by `finalize` alone
            executor.negotiate_should_allow_prefill(
                local_prefillable=True,
                running_batch=report.running_batch,
                max_prefill_bs=report.max_prefill_bs,
                max_running_requests=self._config.max_running_requests,
                waiting_queue_len=report.waiting_queue_len,
            )
        ran = int(report.prefillable and executor._result.output_allow)
        executor.finalize(**dict.fromkeys(_required(executor.finalize), ran))
        return self._verdict(executor._result)

    def _verdict(self, result: Any) -> Verdict:
        state = self._delayer._curr_state
        return Verdict(
            allow=bool(result.output_allow),
            reason=result.output_reason,
            wait_passes=result.wait_forward_passes,
            episode_open=state is not None,
            delayed_passes=state.delayed_count if state is not None else 0,
            free_pass_used=not self._delayer.skip_first_delayer,
        )


def schedule(config: DelayerConfig) -> SimpleNamespace:
    """What `get_schedule()` and, in older releases, `server_args` hold."""
    return SimpleNamespace(
        prefill_delayer_queue_min_ratio=config.queue_min_ratio,
        prefill_delayer_max_delay_ms=config.max_delay_ms,
        prefill_max_requests=config.prefill_max_requests,
        disable_overlap_schedule=False,
        enable_dp_attention=config.enable_dp_attention,
    )


def parallel(config: DelayerConfig, group: Group) -> SimpleNamespace:
    """What `get_parallel()` holds, under the names of every release."""
    return SimpleNamespace(
        dp_size=config.dp_size,
        num_dp_ranks=config.dp_size,
        attn_tp_size=1,
        attn_cp_size=1,
        enable_dp_attention=config.enable_dp_attention,
        attn_dp_enabled=config.enable_dp_attention,
        tp_group=SimpleNamespace(cpu_group=group, device_group=group, device="cpu"),
    )


def options(config: DelayerConfig, group: Group, server_args: SimpleNamespace) -> dict[str, Any]:
    """What the constructor may ask for, under the names of every release."""
    return {
        "dp_size": config.dp_size,
        "attn_tp_size": 1,
        "cpu_group": group,
        "server_args": server_args,
        "max_delay_passes": config.max_delay_passes,
        "token_usage_low_watermark": config.token_usage_low_watermark,
    }


def _construct(tree: Hermetic, known: dict[str, Any]) -> Any:
    delayer = tree.symbol(DELAYER, "PrefillDelayer")
    wanted = _required(delayer)
    unknown = [name for name in wanted if name not in known]
    try:
        if unknown:
            raise TypeError(f"it wants {', '.join(unknown)}, which this adapter does not know")
        return delayer(**{name: known[name] for name in wanted})
    except (AttributeError, TypeError) as error:
        file = tree.load(DELAYER).__file__
        raise TargetError(f"PrefillDelayer in {file}: {error}; supported: sglang {tree.supported}") from error


def _required(function: Any) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def _join(contributions: list[Any]) -> Any:
    import torch

    return torch.cat([tensor.flatten() for tensor in contributions])


def _line(error: Exception, root: str) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
