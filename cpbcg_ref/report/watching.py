"""How a long run goes, on stderr: a line that changes on a terminal, elsewhere a new line now and then."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

TELL_EVERY_S = 30.0  # where nobody looks at a terminal


class Watcher:
    """`see` as often as there is something new; `pause` before something else is printed, and at the end."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        # Drawn in `see` alone: a thread that draws would be in the way of forking.
        quiet: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
        self.bar = Progress(BarColumn(20), TextColumn("{task.description}"), console=console, transient=True, **quiet)
        self.task = self.bar.add_task("", total=None)
        self.live, self.drawn, self.told = console.is_terminal, False, time.monotonic()

    def see(self, line: str, *, done: float, total: float) -> None:
        if self.live:
            self.bar.start()
            self.drawn = True
            self.bar.update(self.task, total=total, completed=done, description=line)
            self.bar.refresh()
        elif time.monotonic() - self.told >= TELL_EVERY_S:
            self.told = time.monotonic()
            self.say(line)

    def say(self, line: str) -> None:
        self.pause()
        print(line, file=sys.stderr, flush=True)

    def pause(self) -> None:
        if self.drawn:  # else it would print an empty line
            self.bar.stop()
        self.drawn = False
