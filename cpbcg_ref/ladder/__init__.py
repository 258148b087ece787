"""Which totals of a server's batches its captured graphs cannot run, and the ladder of buckets that runs them all."""

from cpbcg_ref.ladder.analysis import analyse_ladder
from cpbcg_ref.ladder.model import Analysis, Fallback, Ladder

__all__ = ["Analysis", "Fallback", "Ladder", "analyse_ladder"]
