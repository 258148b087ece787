"""Cases for tests of SGLang's suite, and edits of release 0.5.23 that break or mend what they show."""

from cpbcg_ref.cases import (
    BadLayoutCase,
    Batch,
    CaptureCase,
    DelayerConfig,
    LastPassCase,
    LayoutCase,
    PassesCase,
    RankReport,
    ReplayCase,
    SelectCase,
    SelectPairCase,
    Server,
)

RUNNER, DELAYER = "model_executor/runner/prefill_cuda_graph_runner.py", "managers/prefill_delayer.py"
ZIGZAG, INTERLEAVE, BUCKETS = "layers/cp/zigzag.py", "layers/cp/interleave.py", "layers/cp/bcg/bcg.py"


def batch(*lengths, prefixes=None, known=True):
    return Batch(lengths=lengths, prefixes=prefixes or (0,) * len(lengths), lengths_known=known)


def replay(*batches, ladder=(15, 16, 24, 32), strategy="zigzag", cp_size=2):
    server = Server(cp_size=cp_size, capture_num_tokens=ladder, context_length=64, strategy=strategy)
    return ReplayCase(server=server, batches=batches)


def select(num_tokens, rows, table, ladder=None):
    ladder = tuple(ladder or dict(table))
    return SelectCase(
        num_tokens=num_tokens, required_local_tokens=rows, capture_num_tokens=ladder, bucket_local_tokens=table
    )


CONFIG = {"dp_size": 2, "max_delay_passes": 4, "max_running_requests": 64, "max_delay_ms": 500.0}
QUEUE = CONFIG | {"queue_min_ratio": 0.5, "prefill_max_requests": 4}


def both(**report):
    """The same report on two ranks."""
    return (RankReport(**{"prefillable": True, "running_batch": 8, "max_prefill_bs": 4} | report),) * 2


def mixed(**report):
    return (*both(**report)[:1], RankReport(prefillable=False))


def passes(*reports, **config):
    return PassesCase(config=DelayerConfig(**config), passes=reports)


NONE = both(prefillable=False, running_batch=0, max_prefill_bs=0)
FULL = both(running_batch=64)  # no slot is free
LAYOUT = LayoutCase(cp_size=4, batch=batch(9, 17, 8, prefixes=(0, 3, 100)), spare_rows=3)
OWN_ROWS = ("layers/cp/bcg/zigzag_bcg.py", "return max(per_rank_logical_tokens)",
            "return per_rank_logical_tokens[get_cp_strategy().cp_rank]")  # fmt: skip
LAST_FITS = (BUCKETS, "for bucket in capture_num_tokens:", "for bucket in reversed(capture_num_tokens):")
RUN_OUT = "if queue_condition and tp0_info[:, 5].max().item() > 0:"
WATERMARK = "if global_exists_token_watermark_force_allow:"

# A right release (0.5.23), a case, and one edit that breaks the invariant there.
BROKEN = {
    ("PassesCase", "delay.agree"): (
        passes(both(), both(), (*both(now_ms=500.0)[:1], *both(now_ms=499.0)[:1]), **QUEUE),
        (DELAYER, RUN_OUT, "if prev_state and (time.perf_counter() - prev_state.start_time) * 1000.0 >= 500:"),
    ),
    ("PassesCase", "delay.bounded-passes"): (
        passes(*[FULL] * 6, **CONFIG),
        (DELAYER, "if prev_delayed_count < self._max_delay_passes - 1:", "if True:"),
    ),
    ("PassesCase", "delay.bounded-time"): (
        passes(both(), both(), both(now_ms=500.0), **QUEUE),
        (DELAYER, RUN_OUT, "if False:"),
    ),
    ("PassesCase", "delay.justified"): (
        passes(both(), both(), **CONFIG),
        (DELAYER, "if slot_condition or queue_condition:", "if True:"),
    ),
    ("PassesCase", "delay.watermark"): (
        passes(both(token_usage=0.75), token_usage_low_watermark=0.75, **CONFIG),
        (DELAYER, "and (token_usage < x)", "and (token_usage <= x)"),
    ),
    ("PassesCase", "delay.reason"): (
        passes(mixed(), both(), **CONFIG),
        (DELAYER, 'output_reason="wait_success" if exist_previous_wait else "no_wait"', 'output_reason="no_wait"'),
    ),
    ("PassesCase", "delay.skip-first"): (
        passes(both(token_usage=0.5), token_usage_low_watermark=0.75, **CONFIG),
        (DELAYER, WATERMARK, f"{WATERMARK}\n                self.skip_first_delayer = False"),
    ),
    ("LastPassCase", "delay.target-capacity"): (
        LastPassCase(
            config=DelayerConfig(**QUEUE),
            history=(FULL,),
            last=both(waiting_queue_len=1, max_prefill_bs=1),
            other_last=both(waiting_queue_len=1),
        ),
        (DELAYER, "if self._prefill_max_requests is not None", "if False"),
    ),
    ("LastPassCase", "delay.monotone"): (
        LastPassCase(
            config=DelayerConfig(**QUEUE),
            history=(FULL,),
            last=both(),
            other_last=both(waiting_queue_len=2),
        ),
        (DELAYER, "and global_waiting_queue_max < queue_min_effective", "and global_waiting_queue_max > 0"),
    ),
    ("AttemptsCase", "delay.recent-size"): None,  # see RED_THEN_GREEN
    ("SelectCase", "select.fits-tokens"): (
        select(27, 8, ((16, 8), (32, 16))),
        (BUCKETS, "if bucket < num_tokens:", "if False:"),
    ),
    ("SelectCase", "select.fits-rows"): (
        select(27, 16, ((32, 8), (48, 16))),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("SelectCase", "select.captured"): (
        select(27, 16, ((48, 16),), ladder=(32, 48)),
        (BUCKETS, "self.bucket_local_tokens.get(bucket)", "self.bucket_local_tokens.get(bucket, bucket)"),
    ),
    ("SelectCase", "select.padding-bound"): (
        select(27, 16, ((32, 8), (64, 16))),
        (BUCKETS, "if bucket > max_num_tokens:", "if False:"),
    ),
    ("SelectCase", "select.minimal"): (select(27, 8, ((32, 8), (48, 16))), LAST_FITS),
    ("SelectCase", "select.complete"): (
        select(27, 16, ((32, 8), (48, 16))),
        (BUCKETS, "required_local_tokens <= captured_local_tokens", "required_local_tokens < captured_local_tokens"),
    ),
    ("SelectCase", "select.pure"): (
        select(27, 16, ((48, 16), (64, 16))),
        (BUCKETS, "        max_num_tokens = ", "        self.bucket_local_tokens.popitem()\n        max_num_tokens = "),
    ),
    ("SelectPairCase", "select.monotone"): (
        SelectPairCase(base=select(27, 16, ((48, 16),)), more=select(27, 16, ((48, 16), (54, 16)))),
        LAST_FITS,
    ),
    ("ReplayCase", "capacity.no-overflow"): (
        replay(batch(5, 5, 5)),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("ReplayCase", "replay.admitted-implies-runs"): (
        replay(batch(5, 5, 5), batch(3, 12)),
        (BUCKETS, "and required_local_tokens <= captured_local_tokens", "and True"),
    ),
    ("ReplayCase", "replay.safe-fallback"): (
        replay(batch(15, known=False), batch(3, 12)),
        (ZIGZAG, "all(int(length) >= self.cp_size * 2", "all(int(length) >= 1"),
    ),
    ("ReplayCase", "agree.bucket"): (replay(batch(5, 5, 5)), OWN_ROWS),
    ("ReplayCase", "agree.collectives"): (replay(batch(5, 5, 5)), OWN_ROWS),
    ("ReplayCase", "agree.mode"): (replay(batch(5, 5, 5), ladder=(15,)), OWN_ROWS),
    ("ReplayCase", "select.minimal"): (replay(batch(30), ladder=(32, 40, 48)), LAST_FITS),
    ("ReplayCase", "select.complete"): (
        replay(batch(5, 5, 5), batch(30), ladder=(16, 32)),
        (BUCKETS, "required_local_tokens <= captured_local_tokens", "required_local_tokens < captured_local_tokens"),
    ),
    ("ReplayCase", "select.without-cp"): (
        replay(batch(10), batch(3), cp_size=1),
        (RUNNER, "_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR = 2", "_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR = 1"),
    ),
    ("CaptureCase", "capture.legal"): None,  # see MENDED
    ("BadLayoutCase", "layout.bad-input"): (
        BadLayoutCase(cp_size=2, lengths=(3, 12)),
        (ZIGZAG, "all(int(length) >= self.cp_size * 2", "all(int(length) >= 1"),
    ),
    ("LayoutCase", "layout.bijection"): (
        LAYOUT,
        (ZIGZAG, "torch.cat([chunks[i] for i in metadata.zigzag_index], dim=0)",
         "torch.cat([chunks[i // 2] for i in metadata.zigzag_index], dim=0)"),
    ),
    ("LayoutCase", "layout.conserves"): (
        LAYOUT,
        (ZIGZAG, "actual_seq_q_prev_list.append(block_sizes[cp_rank])",
         "actual_seq_q_prev_list.append(block_sizes[0])"),
    ),
    ("LayoutCase", "layout.nonempty"): (
        LayoutCase(cp_size=4, batch=batch(8)),
        (ZIGZAG, "return pad_local_rows(local_x, metadata, dim=0)",
         "return pad_local_rows(local_x[: 2 * self.cp_rank], metadata, dim=0)"),
    ),
    ("LayoutCase", "layout.companions"): (
        LAYOUT,
        (ZIGZAG, "torch.cat([chunks[i] for i in metadata.zigzag_index], dim=-1)", "chunks[0]"),
    ),
    ("LayoutCase", "layout.causal"): (LAYOUT, (ZIGZAG, "sum(block_sizes[: cp_rank + 1])", "sum(block_sizes[:1])")),
    ("LayoutCase", "layout.balance"): (
        LAYOUT,
        (ZIGZAG, "base + 1 if block_id < rem else base", "length if block_id == 0 else 0"),
    ),
    ("LayoutCase", "layout.roundtrip"): (
        LAYOUT,
        (ZIGZAG, "for i in forward_batch.attn_cp_metadata.cp_reverse_index",
         "for i in reversed(forward_batch.attn_cp_metadata.cp_reverse_index)"),
    ),
    ("LayoutCase", "capacity.required"): (LAYOUT, (BUCKETS, "(max_local_tokens + align_size - 1)", "max_local_tokens")),
}  # fmt: skip
NEVER_DELAY = (DELAYER, "self._max_delay_passes = max_delay_passes", "self._max_delay_passes = 0")
KEEP_COUNTING = (
    DELAYER,
    "next_state=None,\n                # It does not matter",
    "next_state=prev_state,\n                #",
)
SHOULD = {  # what 0.5.23 breaks, and an edit that mends it
    ("PassesCase", "delay.budget"): (passes(*[mixed(), NONE] * 5, **CONFIG), KEEP_COUNTING),
    ("PassesCase", "delay.no-idle-hold"): (passes(mixed(running_batch=0), **CONFIG), NEVER_DELAY),
    ("PassesCase", "delay.own-slots"): (
        passes(*[(*both(running_batch=64, max_prefill_bs=0)[:1], *both(running_batch=0)[:1])] * 2, **CONFIG),
        NEVER_DELAY,
    ),
    ("PassesCase", "delay.reachable-target"): (
        passes(*[both(running_batch=62, max_prefill_bs=1, waiting_queue_len=2)] * 2, **QUEUE),
        NEVER_DELAY,
    ),
}

EQUAL_SPLIT = (
    RUNNER,
    "min(context_length, num_tokens - start)\n            for start in range(0, num_tokens, context_length)",
    "len(range(i, num_tokens, -(-num_tokens // context_length)))\n"
    "            for i in range(-(-num_tokens // context_length))",
)
UNKNOWN_IS_EAGER = (
    INTERLEAVE,
    "        seq_len = sum(forward_batch.extend_seq_lens_cpu)\n",
    "        if forward_batch.extend_seq_lens_cpu is None:\n            return False\n"
    "        seq_len = sum(forward_batch.extend_seq_lens_cpu)\n",
)
LOUD = [
    (INTERLEAVE, "        cp_size = self.cp_size\n        seq_len = sum", "        cp_size = self.cp_size\n"
     "        assert min(forward_batch.extend_seq_lens_cpu) >= 0\n        seq_len = sum"),
    (BUCKETS, "        max_local_tokens = ", "        assert min(extend_seq_lens) >= 0\n        max_local_tokens = "),
]  # fmt: skip
MENDED = {
    "capture.legal": (
        CaptureCase(server=Server(cp_size=2, capture_num_tokens=(12,), context_length=11)),
        [EQUAL_SPLIT],
    ),
    "replay.safe-fallback": (replay(batch(15, known=False), strategy="interleave"), [UNKNOWN_IS_EAGER]),
    "layout.bad-input": (BadLayoutCase(cp_size=2, lengths=(9, -1), strategy="interleave"), LOUD),
}
