"""Wrong windows of recent attempts."""

from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.reference import Reference, ReferenceAttempts
from cpbcg_ref.faults.model import edit, fault

SIZE = "size = admitted or (max(1, min(queue, free_slots)) if queue else 0)"
KEPT = "(*self.sizes, size)[-WINDOW:]"


class DecaysPerPass(ReferenceAttempts):
    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.level = 0.0

    def step(self, attempt: cases.Attempt) -> int:
        admitted = attempt.admitted or max(1, min(attempt.queue, attempt.free_slots)) * (attempt.queue > 0)
        self.level = max(self.level * 0.998, admitted)
        return int(self.level)


@fault("decayed-watermark", must="delay.recent-size", source="sglang#34284", smallest=2)
class DecayedWatermark(Reference):
    """The size decays in every pass, idle ones included, and is truncated to 0."""

    window = DecaysPerPass


edit(
    "lifetime-maximum",
    "a burst is never forgotten",
    ("delayer", KEPT, "(max(*self.sizes, 0, size),)"),
    must="delay.recent-size",
    source="sglang#32880",
    smallest=17,
)
edit(
    "window-of-15",
    "an attempt is forgotten one attempt too early",
    ("delayer", "WINDOW = 16", "WINDOW = 15"),
    must="delay.recent-size",
    smallest=16,
)
edit(
    "window-of-17",
    "an attempt is forgotten one attempt too late",
    ("delayer", "WINDOW = 16", "WINDOW = 17"),
    must="delay.recent-size",
    smallest=17,
)
edit(
    "window-of-the-first",
    "the window keeps the first 16 attempts, not the last",
    ("delayer", KEPT, "(*self.sizes, size)[:WINDOW]"),
    must="delay.recent-size",
    smallest=17,
)
edit(
    "idle-passes-age",
    "an idle pass counts as an attempt of one request",
    ("delayer", SIZE, "size = admitted or max(1, min(queue, free_slots))"),
    must="delay.recent-size",
    smallest=17,
)
edit(
    "last-attempt-alone",
    "the size is that of the last attempt, not the largest",
    ("delayer", "return max(self.sizes, default=0)", "return self.sizes[-1] if self.sizes else 0"),
    must="delay.recent-size",
    smallest=2,
)
edit(
    "smallest-attempt",
    "the size is the smallest of the window",
    ("delayer", "return max(self.sizes, default=0)", "return min(self.sizes, default=0)"),
    must="delay.recent-size",
    smallest=2,
)
edit(
    "rejected-forgotten",
    "a rejected attempt does not count",
    ("delayer", SIZE, "size = admitted"),
    must="delay.recent-size",
    smallest=1,
)
edit(
    "rejected-as-queue",
    "a rejected attempt counts with its whole queue, free slots or not",
    ("delayer", SIZE, "size = admitted or queue"),
    must="delay.recent-size",
    smallest=1,
)
edit(
    "rejected-as-slots",
    "a rejected attempt counts with all free slots, however short the queue",
    ("delayer", SIZE, "size = admitted or (max(1, free_slots) if queue else 0)"),
    must="delay.recent-size",
    smallest=1,
)
edit(
    "rejected-as-nothing",
    "an attempt that was rejected for want of slots counts as none",
    ("delayer", SIZE, "size = admitted or min(queue, free_slots)"),
    must="delay.recent-size",
    smallest=1,
)
