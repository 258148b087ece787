"""Wrong delayers that were seen in public, and the hardened policy with one public weakness of the seeds' policy."""

from dataclasses import replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import Hardened, ReferenceDelayers
from cpbcg_ref.faults.delaying import ALL, LIMIT, NOBODY, SIZES, TIMEOUT, WAITED, delaying, own_value, wrong

wrong(
    "unbounded-all",
    "what the slots hold is held whatever the bound says",
    TIMEOUT,
    f"{TIMEOUT} and not ({ALL} and slot_condition(table, config))",
    must="delay.bounded-passes",
    source="sglang#32880",
    smallest=2,
)
wrong(
    "history-cap",
    "the target is capped by the largest recent attempt although a cap is configured",
    SIZES,
    "max(row.max_prefill_bs for row in table)",
    must="delay.target-capacity",
    source="sglang#35191",
    smallest=3,
)
wrong(
    "cleared-wait",
    "the reported wait is read off the state after the episode was closed",
    WAITED,
    "wait_passes=closed.delayed_passes)",
    must="delay.reason",
    source="sglang#25949",
    smallest=3,
)
wrong(
    "knob-ignored",
    "the bound is the default 30 whatever is configured",
    TIMEOUT,
    "if state.delayed_passes >= 30 - 1",
    must="delay.bounded-passes",
    source="sglang#18309",
    smallest=2,
)
wrong(
    "no-timeout",
    "nobody times out before as many requests wait as there are ranks",
    TIMEOUT,
    f"{TIMEOUT} and sum(row.waiting_queue_len for row in table) >= config.dp_size",
    must="delay.bounded-passes",
    source="vllm-project/tpu-inference#2577",
    smallest=2,
)
wrong(
    "empty-rank-vetoes",
    "a rank that has nothing to prefill holds the others for as long as that lasts",
    TIMEOUT,
    f"{TIMEOUT} and {ALL}",
    must="delay.bounded-passes",
    source="TensorRT-LLM#17379",
    smallest=2,
)
wrong(
    "limit-missing",
    "the limit of running requests never reaches the negotiation and counts as 0",
    LIMIT,
    "0",
    must="delay.justified",
    source="sglang#32389",
    smallest=2,
)
own_value(
    "local-clock",
    "each rank asks its own clock after the gather whether time has run out",
    "timer_expired",
    must="delay.agree",
    source="sglang#30521",
    smallest=4,
)


@delaying("vote-before-gates", must="delay.justified", source="sglang#31835", smallest=2)
class VotesBeforeTheGates(ReferenceDelayers):
    """A rank with a queue votes prefillable before it has looked whether there is room for any of it."""

    def row(self, state: Any, report: cases.RankReport) -> Any:
        return super().row(state, replace(report, prefillable=report.prefillable or report.waiting_queue_len > 0))


@delaying("gather-shape", must="delay.justified", source="sglang#20134", smallest=1)
class BufferOfAnotherGroup(ReferenceDelayers):
    """The buffer of the gather is made for a larger group, and a row that nobody writes votes not prefillable."""

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        larger = replace(self.config, dp_size=len(table) + 1, enable_dp_attention=True)
        unwritten = replace(table[0], prefillable=False, below_watermark=False)
        rows = [replace(row, fingerprint=larger.fingerprint) for row in (*table, unwritten)]
        return self.library.negotiate(rows, state, larger, now_ms=report.now_ms)


@delaying("collective-in-loop", must="delay.agree", source="sglang#30760", smallest=2)
class LeavesBeforeTheGather(ReferenceDelayers):
    """The gather stands in the loop over requests: a full rank has left it before and goes by its own row."""

    def gathered(self, rows: list[Any]) -> list[list[Any]]:
        limit, tables = self.config.running_limit, super().gathered(rows)
        return [[row] * len(t) if row.running_batch >= limit else t for row, t in zip(rows, tables, strict=True)]


wrong(
    "mid-chunk-vote",
    "a rank that goes on with a chunk votes not prefillable unless something new waits",
    'prefillable or (config.policy == "hardened" and chunk_in_progress)',
    "prefillable",
    over=Hardened,
    must="delay.chunk-counts",
    source="sglang#16665",
    smallest=1,
)
wrong(
    "counted-empty-passes",
    "passes in which nobody is prefillable use up the budget of those that will be",
    NOBODY,
    "Decision(allow=True, reason='', state=replace(state, delayed_passes=state.delayed_passes + 1, started_ms=now_ms))",
    over=Hardened,
    must="delay.budget",
    source="ROCm/ATOM#1437",
    smallest=3,
)
wrong(
    "flickering-rank",
    "a pass in which nobody is prefillable closes the episode, and the wait begins anew",
    NOBODY,
    'return release("", state)',
    over=Hardened,
    must="delay.budget",
    smallest=4,
)
wrong(
    "lone-request-held",
    "an idle engine holds a request like a busy one",
    "if hardened and not any(row.running_batch for row in table)",
    "if False",
    over=Hardened,
    must="delay.no-idle-hold",
    smallest=2,
)
wrong(
    "target-unreachable",
    "a queue is waited for that is longer than the free slots",
    "caps.append(config.running_limit - running)",
    "pass",
    over=Hardened,
    must="delay.reachable-target",
    source="sglang#35191",
    smallest=2,
)
wrong(
    "replica-limit-whole",
    "without DP attention each replica takes all slots for its own",
    LIMIT,
    "self.max_running_requests",
    over=Hardened,
    must="delay.reachable-target",
    source="sglang#20134",
    smallest=2,
)
wrong(
    "slots-of-two-ranks",
    "the running requests of one rank are compared with the batch size of another",
    'product(table, table) if config.policy == "seed" else zip(table, table, strict=True)',
    "product(table, table)",
    over=Hardened,
    must="delay.own-slots",
    source="sglang#17456",
    smallest=4,
)
