"""Worker processes that do one job at a time and may die or hang: the rest goes on.

A pool of the standard library is broken as a whole by one death and does not say which job it was.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

Maker = Callable[..., Callable[[Any], Any]]  # makes, in the worker, the function that does a job


@dataclass(frozen=True)
class Ended:
    """What a job came to: its answer, or why there is none. hung: its process was ended for taking too long."""

    job: Any
    answer: Any = None
    problem: str = ""
    hung: bool = False


class Worker:
    """One process. `make(*args)` is called in it, with what can be sent to a process."""

    def __init__(self, make: Maker, args: tuple[Any, ...]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=work, args=(theirs, make, args), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe
        self.job: Any = None
        self.until = 0.0

    def take(self, job: Any, *, seconds: float) -> None:
        """Begin a job, which is hanging if it is not done after so many seconds."""
        self.job, self.until = job, time.monotonic() + seconds
        self.pipe.send(job)

    def ended(self) -> Ended:
        """To call when the pipe is readable."""
        job, self.job = self.job, None
        try:
            answer, problem = self.pipe.recv()
            return Ended(job, answer, problem)
        except (EOFError, ConnectionError):
            self.process.join()
            return Ended(job, problem=f"the engine's code ended the worker process (exit code {self.process.exitcode})")

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(pipe: Connection, make: Maker, args: tuple[Any, ...]) -> None:
    """In the worker: jobs until the pipe is closed or the parent is gone. Ctrl-C is the parent's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    do, parent = make(*args), multiprocessing.parent_process()
    assert parent is not None
    while pipe in wait([pipe, parent.sentinel]):
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((do(job), ""))
        except Exception as problem:
            pipe.send((None, f"{type(problem).__name__}: {problem}"))


class Team:
    """So many workers; one that dies or hangs is replaced."""

    def __init__(self, count: int, make: Maker, args: tuple[Any, ...]) -> None:
        self.make, self.args = make, args
        self.workers = [Worker(make, args) for _ in range(count)]

    def idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is None]

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is not None]

    def ended(self, *, within_s: float) -> Iterator[Ended]:
        """The jobs that ended, as soon as there is one; none if that takes longer."""
        busy = {worker.pipe: worker for worker in self.busy()}
        readable = wait(list(busy), timeout=within_s)
        for pipe, worker in busy.items():
            if pipe in readable:
                ended = worker.ended()
                if ended.problem and not worker.process.is_alive():
                    self.replace(worker)
                yield ended
            elif time.monotonic() > worker.until:
                job = worker.job
                self.replace(worker)
                yield Ended(
                    job, problem="the engine did not come back from one case, so its process was ended", hung=True
                )

    def replace(self, worker: Worker) -> None:
        worker.kill()
        self.workers[self.workers.index(worker)] = Worker(self.make, self.args)

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
