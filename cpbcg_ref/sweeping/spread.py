"""Parts spread over processes of this machine, or over the workers of a Dask cluster."""

import math
from collections.abc import Generator, Sequence
from typing import Any

from cpbcg_ref.checking.workers import Ended, Team
from cpbcg_ref.errors import CpbcgError
from cpbcg_ref.sweeping.asking import answer, worker
from cpbcg_ref.sweeping.scope import Part

CONNECT_S = 10


def here(target: str, parts: Sequence[Part], workers: int) -> Generator[Ended, None, None]:
    """On so many processes, as they end. Whatever ends this ends them."""
    waiting, team = list(parts), Team(min(workers, len(parts)), worker, (target,))
    try:
        while waiting or team.busy():
            for idle in team.idle()[: len(waiting)]:
                idle.take(waiting.pop(0), seconds=math.inf)
            yield from team.ended(within_s=0.2)
    finally:
        team.stop()


def on_cluster(target: str, parts: Sequence[Part], address: str) -> Generator[Ended, None, None]:
    """On the workers of the Dask scheduler at this address, which have cpbcg and the target. Raises CpbcgError."""
    try:
        import distributed
    except ModuleNotFoundError as problem:
        raise CpbcgError(f"--scheduler needs Dask, {problem.name} is missing: pip install 'cpbcg[dask]'") from problem
    dask: Any = distributed
    try:
        client = dask.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as problem:
        raise CpbcgError(f"no Dask scheduler answers at {address!r}: {problem} (as tcp://host:8786)") from problem
    with client:
        sent = {client.submit(answer, target, part, pure=False): part for part in parts}
        try:
            for future in dask.as_completed(list(sent), loop=client.loop):
                failed = future.exception()
                told = f"{type(failed).__name__}: {failed}" if failed else ""
                yield Ended(sent[future], None if failed else future.result(), told)
        finally:
            client.cancel(list(sent))
