"""SGLang's capture, admission and replay: the release's own PrefillCudaGraphRunner, one for every virtual CP rank.

The real constructor runs: it sorts and filters the ladder, allocates its buffers and captures every bucket. The model,
its attention backend and the graph backend are stubs, so a capture records shapes and a replay stops where it would
launch. Everything that decides about rows and buckets is the release's code.
"""

from contextlib import nullcontext
from typing import Any

from cpbcg_ref.answers import Captured, Loaded
from cpbcg_ref.cases import Batch, Server
from cpbcg_ref.engines.sglang_layout import Capacity
from cpbcg_ref.engines.sglang_process import EXECUTOR, RUNNER, SRT, Process
from cpbcg_ref.engines.supplied import Bag, always

SELECTOR = "select_replay_bucket_for_batch"
FACTOR = "_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR"
REQUEST_SLOTS = 4096  # more than any batch here has requests


class Backend(Bag):
    """Stub of the attention and of the graph backend: a capture notes the last batch that attention prepared for."""

    dllm_attention = prefill_cuda_graph_default_max_seq_len = None
    use_captured_forward_metadata_for_breakable_cuda_graph = skips_prefill_metadata_on_idle_dp_rank = False
    prepare_prefill_shared_read_snapshot = resolve_prefill_shared_read_ends = always(None)
    capture_session = always(nullcontext())

    def init_forward_metadata(self, batch: Any) -> None:
        self.batch = batch

    def capture_one(self, key: Any, run_once: Any, **options: Any) -> None:
        self.captured[key.size] = self.batch


class Progress(list[int]):
    """What `tqdm` returns, without a progress bar."""

    set_description = always(None)


class Body(Bag):
    """Stub of the transformer: one embedding number per token."""

    layers, shared_experts_config = (), None

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, input_embeds: Any = None) -> None: ...

    def get_input_embeddings(self) -> Any:
        return lambda ids: ids.view(-1, 1).float()


def model_runner(process: Process, server: Server) -> Any:
    """The owner of the graph runner, as far as graph runners ask it."""
    import torch

    no, none = always(False), always(None)
    slots = max(REQUEST_SLOTS, 1 + max(server.capture_num_tokens, default=0) // server.context_length)
    config = Bag(
        is_multimodal=False, hidden_size=1, context_len=server.context_length, vocab_size=1,
        hf_config=Bag(model_type="", architectures=[]), is_mla_breakable_cuda_graph_supported=False,
    )  # fmt: skip
    return Bag(
        model=Body(), model_config=config, server_args=process.args, attn_backend=Backend(captured={}), device="cpu",
        gpu_id=0, dtype=torch.float32, is_generation=True, is_draft_worker=False, lora_manager=None,
        req_to_token_pool=Bag(size=slots, req_to_token=Bag(shape=(slots, server.context_length))),
        spec_algorithm=Bag(is_eagle=no, is_eagle3=no, is_dflash_family=no, is_none=always(True)),
        attention_layers=[], mha_companion_layers=[], moe_layers=[], moe_fusions=[], graph_shared_output=None,
        pp_group=Bag(is_first_rank=True, is_last_rank=True), tp_group=process.parallel.tp_group,
        get_pp_proxy_topk_size=none, get_pp_proxy_residual_num_blocks=none, get_pp_proxy_dspark_hidden_size=none,
        attn_tp_sequence_sharded=no, prepare_dummy_forward_batch=lambda batch: batch, _kernel_warmed_up=True,
        ngram_embedding_manager=Bag(enabled=False), kv_index_translator=Bag(bind_runner_slots=none),
    )  # fmt: skip


def provide_stubs(process: Process) -> None:
    """Put what the release's runner imports in place before it is executed."""
    provide, backends = process.tree.provide, EXECUTOR + "runner_backend."
    provide(SRT + "runtime_context", get_model=always(Bag(override=always(nullcontext()))))
    provide(backends + "breakable_cuda_graph_backend", BreakableCudaGraphBackend=Backend)
    provide(backends + "utils", resolve_prefill_backend=lambda runner: runner.model_runner.attn_backend)
    provide("tqdm", tqdm=Progress)


class Started:
    """A server after capture, as seen by each of its CP ranks. What the release raises on the way goes up."""

    def __init__(self, process: Process, capacity: Capacity, server: Server) -> None:
        for symbol in ("PrefillCudaGraphRunner.can_run_graph", "PrefillCudaGraphRunner.load_batch"):
            process.tree.symbol(RUNNER, symbol)
        self.process, self.server, self.factor = process, server, process.tree.symbol(RUNNER, FACTOR)
        self.gate = process.tree.symbol(EXECUTOR + "model_runner", "_prefill_cuda_graph_allows_context_parallel")
        process.tree.provide(RUNNER, get_available_gpu_memory=always(0.0), freeze_gc=always(nullcontext()))
        capacity.graph_backend(server.strategy)
        self.runners = [self._runner(rank) for rank in range(server.cp_size)]

    def _runner(self, cp_rank: int) -> Any:
        self.process.enter(self.server.cp_size, self.server.strategy, cp_rank)
        module, ladder = self.process.tree.load(RUNNER), list(self.server.capture_num_tokens)
        prefill = Bag(backend=module.Backend.BREAKABLE, bs=ladder, max_context_size=None, max_seq_len=None)
        self.process.execution.graph.cuda_graph_config = self.process.args.cuda_graph_config = Bag(prefill=prefill)
        self.process.tree.load(EXECUTOR + "input_buffers")._forward_input_buffer_pool.clear()
        return module.PrefillCudaGraphRunner(model_runner(self.process, self.server))

    def _batch(self, batch: Batch, cp_rank: int) -> Any:
        self.process.enter(self.server.cp_size, self.server.strategy, cp_rank)
        return self.process.batch(batch)

    def captured(self, cp_rank: int) -> Captured:
        runner = self.runners[cp_rank]
        made, ladder = sorted(runner.backend.captured.items()), tuple(runner.capture_num_tokens)
        requests = tuple((bucket, tuple(map(int, batch.extend_seq_lens_cpu))) for bucket, batch in made)
        counts = [(bucket, self._captured_rows(cp_rank, bucket)) for bucket, _ in made]
        rows = tuple((bucket, count) for bucket, count in counts if count is not None)
        return Captured(requests=requests, bucket_local_tokens=rows, capture_num_tokens=ladder)

    def _captured_rows(self, cp_rank: int, bucket: int) -> int | None:
        """Rows of the graph of a bucket: as the release recorded them, or the length of its input without CP."""
        runner = self.runners[cp_rank]
        if runner.prefill_cp_bcg_input is None:
            return len(runner.backend.captured[bucket].input_ids)
        rows: int | None = runner.prefill_cp_bcg_input.bucket_local_tokens.get(bucket)
        return rows

    def is_cp_active(self, batch: Batch, cp_rank: int) -> bool:
        return bool(self.process.is_cp_active(self._batch(batch, cp_rank)))

    def can_run_graph(self, batch: Batch, cp_rank: int) -> bool:
        """Both conditions of the release's model runner, in its order."""
        forward, runner = self._batch(batch, cp_rank), self.runners[cp_rank]
        return bool(runner.can_run_graph(forward) and self.gate(runner, forward))

    def select(self, batch: Batch, cp_rank: int) -> int | None:
        """The bucket that `load_batch` would take; None where the gates above it send the batch to eager."""
        forward, runner = self._batch(batch, cp_rank), self.runners[cp_rank]
        if not self.gate(runner, forward):
            return None
        choose = getattr(runner.prefill_cp_bcg_input, SELECTOR, None)
        if choose is None:
            return self._by_tokens(runner, batch.num_tokens)
        asked = {"num_tokens": batch.num_tokens, "extend_seq_lens": forward.extend_seq_lens_cpu}
        asked |= {"capture_num_tokens": runner.capture_num_tokens, "max_padding_factor": self.factor}
        bucket: int | None = choose(**asked)
        return bucket

    def _by_tokens(self, runner: Any, num_tokens: int) -> int | None:
        """The token rule: the release's rounding, within the bounds that its admission puts around it."""
        if num_tokens > runner.max_num_tokens:
            return None
        bucket: int = runner._pad_to_bucket(num_tokens, runner.capture_num_tokens)
        return bucket if bucket <= num_tokens * self.factor else None

    def load_batch(self, batch: Batch, cp_rank: int) -> Loaded:
        """Live rows are the logical ones that the release notes for this rank while it shards the batch: those that it
        treats as real from then on. (0.5.22 notes the rows of the whole bucket for interleave.)"""
        forward, runner = self._batch(batch, cp_rank), self.runners[cp_rank]
        loaded = runner.load_batch(forward)
        static = loaded[0] if isinstance(loaded, tuple) else loaded
        metadata, bucket = static.attn_cp_metadata, len(static.input_ids)
        live = runner.raw_num_tokens if metadata is None else metadata.per_rank_logical_token[cp_rank]
        return Loaded(bucket=bucket, captured_rows=self._captured_rows(cp_rank, bucket), live_rows=int(live))
