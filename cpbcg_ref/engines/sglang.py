"""SGLang as a target: an unpacked or installed release, of which only a few modules are executed, on CPU.

What a release has is found by looking for its symbols; the version is only a name.
"""

from functools import partial
from pathlib import Path

from cpbcg_ref.cases import DelayerConfig
from cpbcg_ref.engines.contract import METHODS, Contract
from cpbcg_ref.engines.sglang_attempts import Attempts
from cpbcg_ref.engines.sglang_delayer import Delayers
from cpbcg_ref.engines.sglang_layout import Capacity, Layout
from cpbcg_ref.engines.sglang_process import RUNNER, Process
from cpbcg_ref.engines.sglang_runner import Started, provide_stubs
from cpbcg_ref.errors import TargetError

ROUNDS = "get_prefill_num_tokens_to_capture"  # where it is there, buckets are rounded up to a multiple of the CP size
LAYOUT = ("layout", "gate", "rows", "positions", "gather", "keys")
NO_GRAPHS = "this release has no CUDA graphs for context-parallel prefill (layers/cp/bcg)"
NO_SELECTOR = "this release has no PrefillCPBCGInput.{}: it picks a bucket by its number of tokens alone"
NEVER = {
    "lengths": "its batches have a length per request, no cumulative ones",
    "votes": "a rank votes while its scheduler makes up a batch, which is not run here",
    "dispatch": "it chooses a bucket for a batch of prefills, not a graph for a step",
}
NO_DATA = "the body of the model is a stub here: python -m gpu_conformance replays data in its buckets"


class SGLang:
    """One release below `package_root`, the folder that contains the folder `sglang`.

    Raises TargetError if a symbol that every supported release has is gone.
    """

    name = "sglang"

    def __init__(self, package_root: Path, version: str) -> None:
        import torch

        torch.set_num_threads(1)  # tensors of a few rows: threads only cost
        self.version, self.root = version, Path(package_root)
        self.roots = (str(self.root / "sglang"),)
        self.process = process = Process(self.root)
        provide_stubs(process)
        self.capacity = capacity = Capacity(process)
        for part, names in {Layout(process): LAYOUT, capacity: ("capacity", "selection")}.items():
            vars(self).update({METHODS[name]: getattr(part, METHODS[name]) for name in names})
        self.start = partial(Started, process, capacity)
        self.start_delayers, self.start_attempts = partial(Delayers, self.root), partial(Attempts, self.root)
        self.contract, self.unavailable = self._contract(), self._unavailable()

    def _contract(self) -> Contract:
        has_interleave = hasattr(self.process.base.ContextParallelStrategy, "shard_local_tokens")
        strategies = ("zigzag", "interleave") if has_interleave else ("zigzag",)
        graphs = tuple(name for name in strategies if self.capacity.graph_backend(name))
        ladder = int(bool(graphs) and hasattr(self.process.tree.load(RUNNER), ROUNDS))
        return Contract(strategies=strategies, graph_strategies=graphs, ladder=ladder)

    def _unavailable(self) -> dict[str, str]:
        reasons = NEVER | {"data": NO_DATA}
        delayers = partial(self.start_delayers, DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=1))
        for capability, start in (("negotiation", delayers), ("attempts", self.start_attempts)):
            try:
                start()
            except TargetError as error:
                reasons[capability] = str(error)
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
        file = self.root.joinpath(*RUNNER.split(".")).with_suffix(".py")
        if symbol in file.read_text("utf-8"):
            raise TargetError(f"{symbol} is used in {file} but was moved")
