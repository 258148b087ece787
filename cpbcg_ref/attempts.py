"""How large prefill batches have been lately: what a rank reports to the delayer as `max_prefill_bs`."""

from dataclasses import dataclass

from cpbcg_ref.checks import check_counts

KEPT = 16


@dataclass(frozen=True, kw_only=True)
class RecentAttempts:
    """Requests in each of the last 16 prefill attempts that were not empty. Other passes do not age them.

    >>> RecentAttempts().after(admitted=20).after().after(queue=5, free_slots=0).sizes
    (20, 1)
    """

    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.sizes) <= KEPT, f"{self}: at most {KEPT}"
        assert min(self.sizes, default=1) >= 1, f"{self}: none is empty"

    @property
    def max_prefill_bs(self) -> int:
        return max(self.sizes, default=0)

    def after(self, *, admitted: int = 0, queue: int = 0, free_slots: int = 0) -> "RecentAttempts":
        """After a pass that ran `admitted` requests, or at 0 refused `queue` of them (0 too: nothing was attempted)."""
        check_counts(admitted=admitted, queue=queue, free_slots=free_slots)
        if not admitted and not queue:
            return self
        size = admitted or max(1, min(queue, free_slots))
        return RecentAttempts(sizes=(*self.sizes, size)[-KEPT:])
