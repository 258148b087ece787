"""Load single files of an unpacked sglang wheel (python load.py is not meant to run; the scripts beside it use it).

Every other sglang module is a mock, so nothing of the server starts. No part of cpbcg is used.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

ROOT = Path(sys.argv[1])


class Mocks:
    """Answers `import sglang...` for whatever was not loaded for real."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_loader(name, Mocks) if name.split(".")[0] == "sglang" else None

    @staticmethod
    def create_module(spec):
        return MagicMock(__path__=[], __spec__=spec, __name__=spec.name)

    @staticmethod
    def exec_module(module):
        pass


def load(name):
    """Execute one real file, such as sglang.srt.layers.cp.base."""
    spec = importlib.util.spec_from_file_location(name, ROOT / (name.replace(".", "/") + ".py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.meta_path.insert(0, Mocks)
# What a rank knows of its group.
parallel = SimpleNamespace(attn_cp_rank=0, attn_cp_size=4, enable_cp_tp_group_sharing=True)
importlib.import_module("sglang.srt.runtime_context").get_parallel = lambda: parallel
base = load("sglang.srt.layers.cp.base")
load("sglang.srt.layers.cp.padding")


def batch(num_tokens, extend_seq_lens_cpu):
    return SimpleNamespace(
        input_ids=range(num_tokens),
        extend_seq_lens_cpu=extend_seq_lens_cpu,
        seq_lens_cpu=extend_seq_lens_cpu,
        forward_mode=SimpleNamespace(is_context_parallel_extend=lambda: True),
        attn_cp_metadata=None,
    )
