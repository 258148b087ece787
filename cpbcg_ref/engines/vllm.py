"""vLLM as a target: an unpacked or installed release, of which only a few modules are executed, on CPU.

What a release has is found by looking for its symbols; the version is only a name.
"""

from pathlib import Path

from cpbcg_ref.engines.contract import METHODS, Contract
from cpbcg_ref.engines.lacking import GRAPHS_FOR_STEPS, NO_DELAYER
from cpbcg_ref.engines.vllm_dispatch import DISPATCHERS, VLLMDispatch
from cpbcg_ref.engines.vllm_layout import LACKS, VLLMLayout

LAYOUT = ("layout", "rows", "positions", "gather", "keys")
ALWAYS = "it cuts every batch; of a short request late ranks get nothing"


class VLLM:
    """One release below `package_root`, the folder that contains the folder `vllm`.

    Prefills are cut into chunks of ceil(length / 2n), whatever their length: late ranks may have none of a short one.
    Raises TargetError if a symbol that every supported release has is gone.
    """

    name = "vllm"
    contract = Contract(blocks="ceil", min_length=0, dispatchers=DISPATCHERS)

    def __init__(self, package_root: Path, version: str) -> None:
        import torch

        torch.set_num_threads(1)  # tensors of a few rows: threads only cost
        root = Path(package_root).absolute()
        self.version, self.roots = version, (str(root / "vllm"),)
        layout = VLLMLayout(root)
        vars(self).update({METHODS[name]: getattr(layout, METHODS[name]) for name in LAYOUT})
        self.start_dispatcher = VLLMDispatch(root).start_dispatcher
        self.unavailable = NO_DELAYER | GRAPHS_FOR_STEPS | {"gate": ALWAYS} | ({} if layout.tells_positions else LACKS)
