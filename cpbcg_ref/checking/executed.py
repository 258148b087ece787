"""Which of the engine's own functions ran: recorded by the interpreter, not claimed by the adapter."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from cpbcg_ref.engines.contract import root_of


@contextmanager
def recording(engine: Any, into: set[str]) -> Iterator[None]:
    """Add "file:qualified.name" of every function in the engine's own files that starts while the block runs.

    The profile hook costs about a tenfold slowdown, so callers record a few cases, not all.
    """

    def hook(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and (root := root_of(engine, code.co_filename)):
            # A path below the root is the same on every machine.
            into.add(f"{Path(code.co_filename).relative_to(root.parent)}:{code.co_qualname}")

    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)
