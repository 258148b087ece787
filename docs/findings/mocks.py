"""Load single files of an unpacked wheel (python mocks.py is not meant to run; the scripts beside it use it).

Every other module of the packages that are named is a mock, so nothing of the engine starts. No part of cpbcg is used.
"""

import importlib.util
import sys
from pathlib import Path
from unittest.mock import MagicMock

ROOT = Path(sys.argv[1])
PACKAGES = set()


class Mocks:
    """Answers imports of what was not loaded for real."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_loader(name, Mocks) if name.split(".")[0] in PACKAGES else None

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
