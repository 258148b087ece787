"""SGLang's `max_prefill_bs`: the release's own scheduler code around an admission that does what the case says.

`Scheduler.get_new_batch_prefill` and what it calls on itself run for real, and so does the window where a release has
one. The prefill adder, the batches and the negotiation are scripted; whatever else is touched is a stand-in.
"""

import copy
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpbcg_ref.cases import Attempt
from cpbcg_ref.engines.hermetic import Hermetic, StandIn
from cpbcg_ref.engines.sglang_process import SRT
from cpbcg_ref.engines.supplied import always
from cpbcg_ref.errors import TargetError

SCHEDULER = SRT + "managers.scheduler"
REAL = (SCHEDULER, SRT + "managers.prefill_delayer", SRT + "environ")  # environ: the length of the window
MAX_RUNNING = 1 << 30  # slots, free and taken
PROBE = Attempt(queue=1, free_slots=1)


class Attempts:
    """A fresh scheduler of the release below `root`, one rank's. Raises TargetError if it cannot be driven.

    `step` runs one pass and answers what the next pass reports as `max_prefill_bs`.
    """

    def __init__(self, root: Path) -> None:
        self._scheduler = fresh(scheduler_class(root))

    def step(self, attempt: Attempt) -> int:
        run(self._scheduler, attempt)
        # A release may change the number on its way to the report, so the next pass is run as well, on a copy.
        return run(copy.deepcopy(self._scheduler), PROBE)


def fresh(scheduler_class: Any) -> Any:
    scheduler = object.__new__(scheduler_class)
    scheduler.init_schedule_policy()
    return scheduler


def run(scheduler: Any, attempt: Attempt) -> int:
    """One pass. Returns the size that was handed to the prefill adder, -1 if the pass made none."""
    running = Batch(range(MAX_RUNNING - attempt.free_slots))
    running.admitted = attempt.admitted
    scheduler.prefill_delayer = negotiation(allow=attempt.admitted > 0)
    scheduler.waiting_queue = [Request("request") for _ in range(max(attempt.queue, attempt.admitted))]
    scheduler.get_new_batch_prefill(running)
    scheduler.waiting_queue = []
    return running.reported


@functools.cache
def scheduler_class(root: Path) -> Any:
    """The release's Scheduler with the collaborators of one pass scripted."""
    tree = Hermetic(root, "sglang", REAL)
    tree.symbol(SCHEDULER, "Scheduler.get_new_batch_prefill")
    adder = type("PrefillAdder", (Adder,), {"results": tree.symbol(SCHEDULER, "AddReqResult")})
    tree.provide(SCHEDULER, PrefillAdder=adder, ScheduleBatch=Batch)
    driven = type("Scheduler", (Driven, tree.symbol(SCHEDULER, "Scheduler")), {})
    try:
        if run(fresh(driven), PROBE) < 0:
            raise TargetError(f"{SCHEDULER} makes no prefill adder for a waiting request")
    except (AttributeError, TypeError) as error:
        raise TargetError(f"{SCHEDULER} needs something that this adapter does not supply: {error}") from error
    return driven


class Driven:
    """What is put over the release's Scheduler: nothing of a GPU server is there, and nothing is in its way."""

    __name__ = "scheduler"
    __getattr__ = StandIn.__getattr__
    chunked_req = None  # of everything that may be None, the one for which a stand-in would not do
    max_running_requests = MAX_RUNNING
    get_num_allocatable_reqs = always(MAX_RUNNING)


def negotiation(*, allow: bool) -> SimpleNamespace:
    """A delayer whose verdict is known; one rank, so that slots are counted as they are."""
    verdict = SimpleNamespace(output_allow=allow, output_reason="" if allow else "delay")
    ranks = {"dp_size": 1, "num_dp_ranks": 1, "enable_dp_attention": True, "attn_dp_enabled": True}
    silent = {"_metrics_collector": None, "_debug_log_enabled": False}
    return SimpleNamespace(_negotiate_should_allow_prefill=always(verdict), **ranks, **silent)


class Adder:
    """Admits as many requests as the case says, after asking the delayer as every release's adder does."""

    new_chunked_req = None
    results: Any  # the release's AddReqResult

    def __init__(self, *args: Any, prefill_delayer_single_pass: Any, **options: Any) -> None:
        self._running = next(arg for arg in args if isinstance(arg, Batch))
        self._running.reported = options["max_prefill_bs"]
        counts = {name: options[name] for name in ("max_prefill_bs", "max_running_requests", "waiting_queue_len")}
        counts |= {"local_prefillable": True, "running_batch": self._running.batch_size()}
        self._negotiate = functools.partial(prefill_delayer_single_pass.negotiate_should_allow_prefill, **counts)
        self.can_run_list: list[Any] = []
        self.preempt_list: list[Any] = []

    def budget_state(self) -> Any:
        return self.results.CONTINUE

    def add_one_req(self, req: Any, **options: Any) -> Any:
        if not self._negotiate() or len(self.can_run_list) == self._running.admitted:
            return self.results.OTHER
        self.can_run_list.append(req)
        return self.results.CONTINUE


class Batch(StandIn):
    """A batch of requests, running or new."""

    batch_is_full, admitted, reported = False, 0, -1

    def __init__(self, reqs: Any) -> None:
        super().__init__("batch")
        self.reqs = reqs

    @classmethod
    def init_new(cls, reqs: Any, *args: Any, **options: Any) -> "Batch":
        return cls(reqs)

    def batch_size(self) -> int:
        return len(self.reqs)

    def is_empty(self) -> bool:
        return not self.reqs


class Request(StandIn):
    beam_group = token_indices_to_pool = None
