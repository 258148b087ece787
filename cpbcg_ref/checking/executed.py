"""Which of the engine's own functions ran: recorded by the interpreter, not claimed by the adapter."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


@contextmanager
def recording(roots: tuple[str, ...], into: set[str]) -> Iterator[None]:
    """Add "file:qualified.name" of every function under `roots` that starts while the block runs.

    The profile hook costs about a tenfold slowdown, so callers record a few cases, not all.
    """

    def hook(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(roots) and not code.co_name.startswith("<"):
            root = next(root for root in roots if code.co_filename.startswith(root))
            shown = Path(code.co_filename).relative_to(Path(root).parent)  # the same on every machine
            into.add(f"{shown}:{code.co_qualname}")

    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)
