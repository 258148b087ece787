import sys
import traceback
from types import SimpleNamespace

import pytest

from cpbcg_ref.engines.hermetic import Hermetic
from cpbcg_ref.errors import TargetError

LEAF = "toy.leaf"


def tree(root, real=(LEAF,), *, files, replaced=None):
    """A package `toy` written to `root`: dotted module name -> source."""
    for name, source in files.items():
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return Hermetic(root, "toy", real, **replaced or {})


def leaf(root, source):
    return tree(root, files={LEAF: source}).load(LEAF)


def release(root, number):
    files = {
        LEAF: "def answer():\n    from toy.state import number\n    from .state import number as same\n"
        "    import toy.state\n    return (number, same, toy.state.number)\n",
        "toy.state": f"number = {number}\n",
    }
    return tree(root, (LEAF, "toy.state"), files=files)


def test_imports_inside_functions_find_their_own_release_in_any_order(tmp_path, monkeypatch):
    old, new = release(tmp_path / "old", 18), release(tmp_path / "new", 19)
    first, second = old.load(LEAF), new.load(LEAF)
    seen = [first.answer(), second.answer(), first.answer()]
    monkeypatch.setitem(sys.modules, "toy", SimpleNamespace(state=new.load("toy.state")))
    monkeypatch.setitem(sys.modules, "toy.state", new.load("toy.state"))
    seen.append(first.answer())
    assert seen == [(18, 18, 18), (19, 19, 19), (18, 18, 18), (18, 18, 18)]


def test_nothing_stays_in_sys_modules(tmp_path):
    before = set(sys.modules)
    tree(tmp_path, files={LEAF: "import toy.state\nimport gpu_library.ops\n"}).load(LEAF)
    assert not [name for name in set(sys.modules) - before if name.startswith(("toy", "gpu_library"))]


def test_a_module_is_in_sys_modules_while_it_is_executed_and_then_what_was_there_is_back(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, LEAF, "the user's own leaf")
    module = leaf(tmp_path, "import sys\nfrom toy import state\nseen = sys.modules[__name__]\n")
    assert module.seen is module
    assert sys.modules[LEAF] == "the user's own leaf"
    assert "toy.state" not in sys.modules


def test_a_module_outside_the_list_is_not_executed(tmp_path):
    files = {LEAF: "from toy import heavy\nfrom toy.heavy import kernel\n", "toy.heavy": "raise SystemExit\n"}
    assert repr(tree(tmp_path, files=files).load(LEAF).kernel) == "<stand-in toy.heavy.kernel>"


def test_a_third_party_package_is_not_imported_even_if_it_is_there(tmp_path):
    assert not hasattr(leaf(tmp_path, "import hypothesis\n").hypothesis, "__version__")


@pytest.mark.parametrize(
    "line",
    [
        "class Layer(Absent): pass",
        "class Layer(Absent, metaclass_option=1): pass",
        "class Layer(Absent[int], Absent.Other): pass",
        "class Layer(Absent): pass\nclass Wider(Layer, Absent): pass\nclass Widest(Absent, Layer): pass",
        "class Layer(Absent):\n    def __init__(self):\n        super().__init__(1, size=2)\nLayer()",
        "@Absent\ndef kernel(): pass\nassert kernel() is None",
        "@Absent.jit(size=3)\ndef kernel(): pass\nassert kernel() is None",
        "@Absent\nclass Layer: pass\nassert isinstance(Layer(), Layer)",
        "def f(x: Absent | None, y: 'str' = None, z: int | Absent = 0) -> None | Absent: pass",
        "from typing import Optional, Union\nx = Optional[Absent], Union[Absent, int], list[Absent], dict[str, Absent]",
        "for x in Absent: raise SystemExit\nassert list(Absent.items()) == [] and 3 not in Absent",
        "with Absent() as x: pass",
        "assert not (Absent >= (3, 9)) and not Absent < 1 and Absent != 0 and Absent == Absent and not Absent",
        "assert not isinstance(3, Absent) and not isinstance(3, (Absent, str)) and not issubclass(int, Absent)",
        "x = {Absent: Absent.a.b['c'](1, 2).d}",
        "assert Absent.name is Absent.name",
        "import gpu_library\nassert gpu_library.Absent is gpu_library.Absent is Absent",
        "import copy\nassert copy.deepcopy([Absent]) == [Absent]",
        "from gpu_library.ops import *",
        "import gpu_library.ops as ops, gpu_library\nassert gpu_library.ops is ops",
    ],
)
def test_a_stand_in_survives(tmp_path, line):
    leaf(tmp_path, f"from gpu_library import Absent\n{line}\n")


def test_a_stand_in_is_no_number(tmp_path):
    with pytest.raises(TargetError, match="TypeError: int"):
        leaf(tmp_path, "from gpu_library import rank\nrows = int(rank)\n")


def test_a_method_of_an_absent_base_class_is_missed(tmp_path):
    module = leaf(tmp_path, "from toy.base import Base\nclass Runner(Base): pass\n")
    with pytest.raises(AttributeError):
        module.Runner().replay()


def test_a_dataclass_with_string_annotations_can_be_made(tmp_path):
    source = (
        "from __future__ import annotations\nimport dataclasses\nfrom typing import ClassVar\n"
        "@dataclasses.dataclass\nclass State:\n    rows: int\n    limit: ClassVar[int] = 3\n    wait: KW = 0\n"
    )
    assert leaf(tmp_path, source).State(5).rows == 5


def test_a_submodule_of_an_executed_package_is_imported_on_demand(tmp_path):
    files = {
        "toy.cp.__init__": "from .zigzag import blocks\n",
        "toy.cp.zigzag": "blocks = 8\n",
        "toy.cp.kernels": "raise SystemExit\n",
        LEAF: "from toy.cp import blocks, kernels, zigzag\nassert zigzag.blocks == blocks == 8\n",
    }
    tree(tmp_path, (LEAF, "toy.cp", "toy.cp.zigzag"), files=files).load(LEAF)


def test_a_name_that_a_real_module_lacks_is_an_error(tmp_path):
    files = {LEAF: "from toy.state import number, missing\n", "toy.state": "number = 1\n"}
    with pytest.raises(TargetError, match="missing"):
        tree(tmp_path, (LEAF, "toy.state"), files=files).load(LEAF)


def test_a_module_that_fails_stays_unloaded(tmp_path):
    failing = tree(tmp_path, files={LEAF: "rows = 3\nraise ValueError('no GPU\\nsecond line')\n"})
    for _ in range(2):
        with pytest.raises(TargetError, match=r"leaf\.py cannot be executed: ValueError: no GPU$"):
            failing.load(LEAF)


def test_a_missing_module_is_absent(tmp_path):
    toy = tree(tmp_path, (LEAF, "toy.newer"), files={LEAF: ""})
    assert toy.has(LEAF)
    assert not toy.has("toy.newer")
    with pytest.raises(
        TargetError, match=r"toy\.newer is missing in .*newer: this release has moved it or never had it$"
    ):
        toy.load("toy.newer")


def test_a_missing_symbol_is_named_with_its_file(tmp_path):
    toy = tree(tmp_path, files={LEAF: "class Runner:\n    def replay(self): return 1\n"})
    assert toy.symbol(LEAF, "Runner.replay")(None) == 1
    with pytest.raises(TargetError, match=r"Runner\.capture is missing in .*leaf\.py"):
        toy.symbol(LEAF, "Runner.capture")


def test_a_traceback_shows_the_file_and_line_of_the_engine(tmp_path):
    module = leaf(tmp_path, "def load_batch():\n    raise RuntimeError\n")
    with pytest.raises(RuntimeError) as caught:
        module.load_batch()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.line) == (str(tmp_path / "toy/leaf.py"), 2, "raise RuntimeError")


def test_process_state_is_provided_before_loading(tmp_path):
    toy = tree(tmp_path, files={LEAF: "from toy.state import rank\nimport toy.state\n"})
    toy.provide("toy.state", rank=lambda: 3)
    assert toy.load(LEAF).rank() == 3
    assert toy.load(LEAF).toy.state.rank() == 3


def test_a_standard_module_can_be_replaced_for_one_tree(tmp_path):
    class Clock:
        perf_counter = staticmethod(lambda: 7.0)

    source = "import time\nfrom time import perf_counter\nseen = (time.perf_counter(), perf_counter())\n"
    assert tree(tmp_path, files={LEAF: source}, replaced={"time": Clock}).load(LEAF).seen == (7.0, 7.0)
