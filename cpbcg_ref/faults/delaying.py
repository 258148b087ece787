"""How wrong delayers are written down: one text of the core's delayer replaced, or one class for all its ranks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import Reference, ReferenceDelayers
from cpbcg_ref.faults.model import edit, fault

TIMEOUT = "if state.delayed_passes >= config.max_delay_passes - 1"
TIMED_OUT = 'return release("wait_timeout", state)'
NEITHER = "if not slot_condition(table, config) and not queue_condition(table, config):\n            return release("
NOBODY = 'return Decision(allow=True, reason="", state=state) if hardened else release("", state)'
LOW = "if any(row.below_watermark for row in table):\n        return release("
COUNTED = "delayed_passes=state.delayed_passes + 1"
WAITED = "wait_passes=state.delayed_passes)"
FREELY = '"wait_success" if state.delayed_passes else "no_wait"'
STARTED = "started_ms = now_ms if state.started_ms is None else state.started_ms"
TIMER = "state.started_ms is not None and now_ms - state.started_ms >= config.max_delay_ms"
SIZES = "config.prefill_max_requests or max(row.max_prefill_bs for row in table)"
TARGET = "target = int(min(running * config.queue_min_ratio, *caps))"
QUEUE = "max(row.waiting_queue_len for row in table) < target"
SLOTS = "config.running_limit - one.running_batch < other.max_prefill_bs"
LIMIT = "self.max_running_requests if self.enable_dp_attention else -(-self.max_running_requests // self.dp_size)"
ALL = "all(row.prefillable for row in table)"


def wrong(key: str, sentence: str, old: str, new: str, *more: str, **named: Any) -> None:
    """One text of the delayer replaced, or several, each followed by what stands there instead."""
    texts = (old, new, *more)
    edits = zip(("delayer",) * len(texts), texts[::2], texts[1::2], strict=False)
    edit(key, sentence, *edits, **named)


def delaying(key: str, *, over: type = Reference, **named: Any) -> Callable[[type], type]:
    """Register the engine whose ranks are this class. over, named: as for `edit` and `fault`."""

    def register(ranks: type) -> type:
        fault(key, **named)(type(ranks.__name__, (over,), {"__doc__": ranks.__doc__, "delayers": ranks}))
        return ranks

    return register


def own_value(key: str, sentence: str, field: str, **named: Any) -> None:
    """Ranks that decide by their own value where the table holds the value of every rank."""

    def decide(self: Any, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        mine = {field: getattr(self.row(state, report), field)}
        return ReferenceDelayers.decide(self, [replace(row, **mine) for row in table], state, report)

    delaying(key, **named)(type("OwnValue", (ReferenceDelayers,), {"__doc__": sentence, "decide": decide}))
