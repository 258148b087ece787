"""Delayers that let the right pass go for the wrong reason, or hold the wrong pass: the watermark, slots, queue."""

from dataclasses import replace
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import ReferenceDelayers
from cpbcg_ref.faults.delaying import ALL, LIMIT, LOW, QUEUE, SIZES, SLOTS, TARGET, delaying, own_value, wrong

ANY_LOW = "any(row.below_watermark for row in table)"

wrong(
    "watermark-at-equality",
    "usage equal to the watermark counts as below it",
    "token_usage < watermark",
    "token_usage <= watermark",
    must="delay.watermark",
    smallest=1,
)
wrong(
    "watermark-reversed",
    "high usage lets go, low usage does not",
    "token_usage < watermark",
    "token_usage > watermark",
    must="delay.watermark",
    smallest=1,
)
wrong(
    "watermark-of-idle-ranks",
    "a rank with nothing to prefill lets the others go when its own usage is low",
    "below_watermark=ready and watermark",
    "below_watermark=watermark",
    must="delay.watermark",
    smallest=2,
)
wrong(
    "watermark-in-mixed-alone",
    "low usage lets go in mixed status only",
    LOW,
    LOW.replace(ANY_LOW, f"{ANY_LOW} and not {ALL}"),
    must="delay.watermark",
    smallest=2,
)
wrong(
    "watermark-in-all-alone",
    "low usage lets go only where every rank is prefillable",
    LOW,
    LOW.replace(ANY_LOW, f"{ANY_LOW} and {ALL}"),
    must="delay.watermark",
    smallest=2,
)
wrong(
    "watermark-of-every-rank",
    "low usage lets go only where the usage of every rank is low",
    LOW,
    LOW.replace("any", "all"),
    must="delay.watermark",
    smallest=2,
)
own_value(
    "own-watermark",
    "low usage lets go only the rank whose usage is low",
    "below_watermark",
    must="delay.watermark delay.agree",
    smallest=2,
)


@delaying("table-changed", must="delay.watermark delay.agree", smallest=2)
class ReadsOnce(ReferenceDelayers):
    """A rank takes the flags out of the table that the ranks behind it are going to read."""

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        decision = super().decide(table, state, report)
        table[:] = [replace(row, below_watermark=False) for row in table]
        return decision


wrong(
    "nobody-held",
    "a pass in which nobody is prefillable is held like a mixed one",
    "if not any(row.prefillable for row in table):",
    "if not table:",
    must="delay.justified",
    smallest=1,
)
wrong(
    "slots-at-equality",
    "exactly as many free slots as the usual batch needs count as too few",
    SLOTS,
    SLOTS.replace("<", "<="),
    must="delay.justified",
    smallest=2,
)
wrong(
    "slots-of-all-running",
    "the running requests of all ranks are summed up and compared with the limit of one",
    SLOTS,
    "config.running_limit - sum(row.running_batch for row in table) < other.max_prefill_bs",
    must="delay.justified",
    smallest=4,
)
wrong(
    "replica-limit-rounded-down",
    "without DP attention the slots that remain after the division belong to no replica",
    LIMIT,
    LIMIT.replace("-(-", "(+"),
    must="delay.justified",
    smallest=2,
)
wrong(
    "queue-at-equality",
    "a queue that has reached its target is still waited for",
    QUEUE,
    QUEUE.replace("<", "<="),
    must="delay.justified",
    smallest=2,
)
wrong(
    "queue-reversed",
    "a queue above its target is waited for, a short one is not",
    QUEUE,
    QUEUE.replace("<", "> target > 0 <"),
    must="delay.monotone delay.justified",
    smallest=3,
)
wrong(
    "queue-of-the-shortest",
    "the shortest queue has to reach the target, not the longest",
    QUEUE,
    QUEUE.replace("max", "min"),
    must="delay.justified",
    smallest=4,
)
own_value(
    "own-queue",
    "each rank compares its own queue with the target",
    "waiting_queue_len",
    must="delay.justified delay.agree",
    smallest=4,
)
own_value(
    "own-running",
    "each rank counts its own running requests for the largest",
    "running_batch",
    must="delay.agree delay.skip-first",
    smallest=2,
)
own_value(
    "own-size",
    "each rank counts its own batch size for the largest",
    "max_prefill_bs",
    must="delay.agree delay.skip-first",
    smallest=2,
)
wrong(
    "target-rounded-up",
    "the target is rounded up",
    TARGET,
    TARGET.replace("int(min(", "-int(-min(").replace("*caps))", "*caps) // 1)"),
    must="delay.justified",
    smallest=2,
)
wrong(
    "target-of-the-larger",
    "the target is the larger of the wanted queue and its cap",
    TARGET,
    TARGET.replace("min(", "max("),
    must="delay.justified",
    smallest=2,
)
wrong(
    "target-of-all-running",
    "the target is a share of the running requests of all ranks together",
    "running = max(row",
    "running = sum(row",
    must="delay.justified",
    smallest=4,
)
wrong(
    "target-without-cap",
    "without a configured cap nothing caps the target",
    SIZES,
    "config.prefill_max_requests or running",
    must="delay.target-capacity",
    smallest=3,
)
