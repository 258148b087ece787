"""Run a test file of SGLang's suite on an unpacked release: python upstream.py DIR FILE, needs torch.

The package itself cannot be imported without a GPU stack. Here `from sglang...` in the test file finds the release's
own leaf modules and stand-ins for everything else; `sglang.test`, which no wheel has, is what test files take from it.
"""

import sys
import unittest
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.sglang_process import LEAVES, SRT

MORE = (SRT + "managers.prefill_delayer", SRT + "managers.scheduler")


class Parallel(SimpleNamespace):
    """`get_parallel()` of a process that was not started: what it knows can be overridden for a while."""

    @contextmanager
    def override(self, **values):
        before = dict(vars(self))
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)


def release(root):
    tree = Hermetic(root, "sglang", (*LEAVES, *MORE))
    parallel = Parallel(attn_cp_rank=0, attn_cp_size=1, tp_rank=0, tp_size=1, attn_tp_size=1, enable_prefill_cp=False)
    tree.provide(SRT + "runtime_context", get_parallel=lambda: parallel)
    tree.provide("sglang.test.test_utils", CustomTestCase=unittest.TestCase)
    tree.provide("sglang.test.ci.ci_register", register_cpu_ci=lambda **options: None)
    return tree


def executed(file, tree):
    """The module of a test file whose imports are answered by `tree`."""
    module = sys.modules[file.stem] = ModuleType(file.stem)
    vars(module)["__builtins__"] = tree._builtins
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    return module


if __name__ == "__main__":
    folder, test_file = map(Path, sys.argv[1:])
    unittest.main(module=executed(test_file, release(folder)), argv=["unittest"])
