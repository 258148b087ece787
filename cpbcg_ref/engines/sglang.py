"""SGLang as a target: an unpacked or installed release, of which only a few modules are executed, on CPU.

What a release has is found by looking for its symbols; the version is only a name.
"""

from pathlib import Path
from typing import Any

from cpbcg_ref.cases import DelayerConfig
from cpbcg_ref.engines import sglang_delayer
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.sglang_layout import Capacity, Layout
from cpbcg_ref.engines.sglang_process import RUNNER, SUPPORTED, Process
from cpbcg_ref.engines.sglang_runner import Runners
from cpbcg_ref.errors import TargetError

NO_GRAPHS = "this release has no CUDA graphs for context-parallel prefill (layers/cp/bcg)"
NO_SELECTOR = "this release has no PrefillCPBCGInput.{}: it picks a bucket by its number of tokens alone"
ROUNDS = "get_prefill_num_tokens_to_capture"  # where it is there, buckets are rounded up to a multiple of the CP size
NO_DATA = "replaying captured data needs a GPU, and the body of the model is a stub here"


class SGLang:
    """One release below `package_root`, the folder that contains the folder `sglang`.

    Raises TargetError if a symbol that every supported release has is gone.
    """

    name = "sglang"

    def __init__(self, package_root: Path, version: str) -> None:
        import torch

        torch.set_num_threads(1)  # tensors of a few rows: threads only cost
        self.version = version
        self.roots = (str(Path(package_root) / "sglang"),)
        self.process = Process(Path(package_root))
        self.layout, self.capacity = Layout(self.process), Capacity(self.process)
        self.runners = Runners(self.process, self.capacity)
        self.contract = self._contract()
        self.unavailable = self._unavailable()
        self._delegate()

    def _contract(self) -> Contract:
        has_interleave = hasattr(self.process.base.ContextParallelStrategy, "shard_local_tokens")
        strategies = ("zigzag", "interleave") if has_interleave else ("zigzag",)
        graphs = tuple(name for name in strategies if self.capacity.graph_backend(name))
        ladder = int(bool(graphs) and hasattr(self.process.tree.load(RUNNER), ROUNDS))
        return Contract(strategies=strategies, graph_strategies=graphs, ladder=ladder)

    def _unavailable(self) -> dict[str, str]:
        reasons = {"data": NO_DATA} | sglang_delayer.unavailable(self.process.tree.root)
        if self.capacity.input is None:
            self._never("PrefillCPBCGInput")
            return reasons | dict.fromkeys(("replay", "capacity", "selection"), NO_GRAPHS)
        for capability, name in (("capacity", "required_local_tokens"), ("selection", "select_replay_bucket")):
            if not hasattr(self.capacity.input, name):
                self._never(name)
                reasons[capability] = NO_SELECTOR.format(name)
        return reasons

    def _never(self, symbol: str) -> None:
        """A release whose runner speaks of a symbol has it somewhere else: that is no lack but an unknown release."""
        file = self.process.tree.root.joinpath(*RUNNER.split(".")).with_suffix(".py")
        if symbol in file.read_text("utf-8"):
            raise TargetError(f"{symbol} is used in {file} but was moved; supported: sglang {SUPPORTED}")

    def _delegate(self) -> None:
        for part, names in (
            (self.layout, ("is_cp_active", "logical_rows", "shard", "shard_positions", "gather", "kv_segments")),
            (self.capacity, ("required_local_tokens", "select_replay_bucket")),
            (self.runners, ("start",)),
        ):
            for name in names:
                setattr(self, name, getattr(part, name))

    def start_delayers(self, config: DelayerConfig) -> Any:
        return sglang_delayer.start_delayers(self.process.tree.root, config)

    def start_attempts(self) -> Any:
        return sglang_delayer.start_attempts(self.process.tree.root)
