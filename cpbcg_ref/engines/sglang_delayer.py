"""SGLang's prefill delayer: the release's own file, executed for every virtual rank, one pass after the other.

Supplied from outside: the collective, the clock, and the process-wide configuration. Everything else is the engine's.
In a pass every rank runs twice: a copy of its delayer up to the gather, to hand in a tensor, and then the delayer
itself, which receives those of all ranks.
"""

import copy
import functools
import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from cpbcg_ref.answers import Raised, Verdict
from cpbcg_ref.asking import OnItsBehalf, answered
from cpbcg_ref.cases import DelayerConfig, RankReport
from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.sglang_process import SRT
from cpbcg_ref.engines.supplied import Bag
from cpbcg_ref.errors import TargetError

DELAYER = SRT + "managers.prefill_delayer"
GROUP = "the process group of all ranks"
_here = SimpleNamespace()  # what the rank that runs now sees: now, process, gather


class CollectiveFailed(OnItsBehalf):
    """What a rank gets from a gather that would hang or break on real hardware."""


class HandedIn(BaseException):
    """Ends the first run of a rank: it has arrived at the gather."""


class Gather:
    """The all-gather of one pass as one rank sees it; `gathered` is what it receives, None in its first run."""

    def __init__(self, gathered: Any = None) -> None:
        self.gathered, self.contribution = gathered, None

    def __call__(self, output: Any, contribution: Any, group: str) -> None:
        assert group == GROUP
        if self.contribution is not None:
            raise CollectiveFailed("this rank gathers a second time in the same pass")
        self.contribution = contribution
        if self.gathered is None:
            raise HandedIn
        if isinstance(self.gathered, CollectiveFailed):
            raise self.gathered
        if output.numel() != self.gathered.numel():
            raise CollectiveFailed(f"{self.gathered.numel()} values do not fit a buffer of {output.numel()}")
        output.copy_(self.gathered.view_as(output))


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


@functools.cache
def delayer_tree(root: Path) -> Hermetic:
    """A tree of its own: only this file may see the virtual clock, and it must before the class is made."""
    import torch

    def now() -> Any:
        return _here.now

    def all_gather(*args: Any, **options: Any) -> None:
        _here.gather(*args, **options)

    own_torch = ModuleType("torch")
    vars(own_torch).update(vars(torch), distributed=SimpleNamespace(all_gather_into_tensor=all_gather))
    clock = SimpleNamespace(perf_counter=now, monotonic=now, time=now)
    tree = Hermetic(root, "sglang", [DELAYER], time=clock, torch=own_torch)
    tree.provide(SRT + "distributed.utils", all_gather_single=all_gather)
    tree.provide(SRT + "runtime_context", get_parallel=lambda: _here.process, get_schedule=lambda: _here.process)
    tree.symbol(DELAYER, "PrefillDelayerSinglePassExecutor.negotiate_should_allow_prefill")
    return tree


class Delayers:
    """Fresh delayers of the release below `root`, one for each DP rank. `step` runs one scheduler pass on all of them.

    Raises TargetError if the release has none or needs something that this adapter does not know.
    """

    def __init__(self, root: Path, config: DelayerConfig) -> None:
        self.roots, self._together = (str(root / "sglang"),), config.enable_dp_attention
        self._ranks = [Rank(delayer_tree(root), config) for _ in range(config.dp_size)]

    def step(self, reports: Sequence[RankReport]) -> list[Verdict | Raised]:
        """The verdict of every rank. Without DP attention each one is a replica that gathers from nobody else."""
        ranks = list(zip(self._ranks, reports, strict=self._together))
        groups = [ranks] if self._together else [[rank] for rank in ranks]
        verdicts: list[Verdict | Raised] = []
        for group in groups:
            gathered = join([rank.contribution(report) for rank, report in group])
            verdicts += [answered(self, rank.step, report, gathered) for rank, report in group]
        return verdicts


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
        self._process = _here.process = process_state(config)
        delayer, _here.now = tree.symbol(DELAYER, "PrefillDelayer"), Seconds(0.0)
        try:
            self._delayer = delayer(**{name: getattr(self._process, name) for name in required(delayer)})
        except (AttributeError, TypeError) as error:
            file = tree.load(DELAYER).__file__
            raise TargetError(f"PrefillDelayer in {file}: {error}") from error

    def contribution(self, report: RankReport) -> Any:
        """The tensor that this rank hands in, None if it ends without a gather."""
        gather = Gather()
        with suppress(Exception, HandedIn):  # an error comes again in `step`
            self._run(copy.deepcopy(self._delayer), report, gather)
        return gather.contribution

    def step(self, report: RankReport, gathered: Any) -> Verdict:
        said, state = self._run(self._delayer, report, Gather(gathered)), self._delayer._curr_state
        told = {"allow": bool(said.output_allow), "reason": said.output_reason, "wait_passes": said.wait_forward_passes}
        delayed, used = 0 if state is None else state.delayed_count, not self._delayer.skip_first_delayer
        return Verdict(**told, episode_open=state is not None, delayed_passes=delayed, free_pass_used=used)

    def _run(self, delayer: Any, report: RankReport, gather: Gather) -> Any:
        _here.now, _here.process, _here.gather = Seconds(report.now_ms), self._process, gather
        executor = self._executor(delayer, token_usage=report.token_usage)
        if report.prefillable:  # a rank with nothing to prefill is asked by `finalize` alone
            counts = {name: getattr(report, name) for name in ("running_batch", "max_prefill_bs", "waiting_queue_len")}
            counts["max_running_requests"] = self._process.max_running_requests
            executor.negotiate_should_allow_prefill(local_prefillable=True, **counts)
        ran = int(report.prefillable and executor._result.output_allow)
        executor.finalize(**dict.fromkeys(required(executor.finalize), ran))
        return executor._result


def process_state(config: DelayerConfig) -> Any:
    """What a rank finds in its schedule, its server arguments and so on, under the names of every release."""
    state: Any = Bag(**asdict(config), attn_tp_size=1, attn_cp_size=1, disable_overlap_schedule=False, cpu_group=GROUP)
    state.num_dp_ranks, state.attn_dp_enabled = config.dp_size, config.enable_dp_attention
    state.prefill_delayer_queue_min_ratio = config.queue_min_ratio
    state.prefill_delayer_max_delay_ms = config.max_delay_ms
    state.tp_group, state.server_args = Bag(cpu_group=GROUP, device_group=GROUP, device="cpu"), state
    return state


def required(function: Any) -> list[str]:
    return [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
