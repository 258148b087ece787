"""Executable specification of context-parallel prefill with captured CUDA graphs. Standard library only."""

from cpbcg_ref.capture import CaptureTable, capture_requests
from cpbcg_ref.delayer import Decision, DelayerConfig, DelayerState, RankReport, RecentAttempts, make_report, negotiate
from cpbcg_ref.errors import CpbcgError, InvalidInput, ReplayError
from cpbcg_ref.layout import (
    extend_lengths,
    gather,
    is_cp_active,
    kv_segments,
    local_tokens,
    per_rank_logical_tokens,
    required_local_tokens,
    shard,
)
from cpbcg_ref.replay import Replay, can_run_graph, load_batch, select_replay_bucket, select_replay_bucket_for_batch

__all__ = ["CpbcgError", "InvalidInput", "ReplayError"]
__all__ += ["extend_lengths", "gather", "is_cp_active", "kv_segments", "local_tokens", "per_rank_logical_tokens"]
__all__ += ["CaptureTable", "capture_requests", "required_local_tokens", "shard"]
__all__ += ["Replay", "can_run_graph", "load_batch", "select_replay_bucket", "select_replay_bucket_for_batch"]
__all__ += ["Decision", "DelayerConfig", "DelayerState", "RankReport", "RecentAttempts", "make_report", "negotiate"]
