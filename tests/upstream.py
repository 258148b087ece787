"""Run a test file of SGLang's suite on an unpacked release, without a GPU stack: python upstream.py DIR FILE.

The package itself cannot be imported here. `from sglang...` in the test file finds the release's own leaf modules and
stand-ins for everything else; `sglang.test`, which needs a server, is the few names that test files take from it.
"""

import io
import re
import sys
import unittest
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.engines.sglang_process import LEAVES, SRT
from cpbcg_ref.report.unittests import unittest_for

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


class Edited(Hermetic):
    """A release in which some files have others in their place: those below `over`."""

    def __init__(self, over, *args):
        self.over = over
        super().__init__(*args)

    def _file(self, name):
        file = super()._file(name)
        shadow = file and self.over and self.over / file.relative_to(self.root)
        return shadow if shadow and shadow.is_file() else file


def written(folder, invariant, case, message="seen"):
    """The file of a test that is written for this case."""
    source = unittest_for(engine="sglang", invariant=invariant, case=case, message=message)
    file = folder / f"test_{re.sub('[^a-z]', '_', invariant)}.py"
    file.write_text(source, "utf-8")
    return file


def release(root, over=None):
    tree = Edited(over, root, "sglang", (*LEAVES, *MORE))
    parallel = Parallel(attn_cp_rank=0, attn_cp_size=1, tp_rank=0, tp_size=1, attn_tp_size=1, enable_prefill_cp=False)
    tree.provide(SRT + "runtime_context", get_parallel=lambda: parallel)
    tree.provide("sglang.test.test_utils", CustomTestCase=unittest.TestCase)
    tree.provide("sglang.test.ci.ci_register", register_cpu_ci=lambda **options: None)
    return tree


def executed(file, tree):
    """The module of a test file whose imports are answered by `tree`."""
    module = sys.modules[file.stem] = ModuleType(file.stem)
    vars(module)["__builtins__"] = tree._builtins
    exec(compile(file.read_text("utf-8"), str(file), "exec"), vars(module))
    return module


def outcome(file, tree):
    """The result of the tests of a file."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(executed(file, tree))
    return unittest.TextTestRunner(stream=io.StringIO()).run(suite)


if __name__ == "__main__":
    folder, test_file = map(Path, sys.argv[1:])
    unittest.main(module=executed(test_file, release(folder)), argv=["unittest"])
