"""Search one engine until the time is up: rounds of families in worker processes, one campaign for what they find."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis.configuration import set_hypothesis_home_dir

from cpbcg_ref.checking.campaign import Campaign, Failure, Note
from cpbcg_ref.checking.database import open_database
from cpbcg_ref.checking.rounds import Job, Round, Searcher
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.checking.workers import Team
from cpbcg_ref.engines.targets import resolve
from cpbcg_ref.invariants import REGISTRY

HANGS_AFTER_S, GRACE_S = 60.0, 3.0  # without an answer: during the campaign, and after its end
LOOK_EVERY_S = 0.5
PROFILE = "dev"  # of a round: short, so that every family gets its turn and findings are told early
_engines: dict[str, Any] = {}  # by target: a forked worker finds the engine loaded, a spawned one loads it again


def fuzz(
    target: str,
    *,
    seconds: float,
    ids: Iterable[str] | None = None,
    workers: int | None = None,
    database: str | None = None,
    ci_database: Path | None = None,
    folder: Path | None = None,
    replay: str = "",
    allow_unpinned: bool = False,
    tell: Note,
    announce: Callable[[Failure], None] = lambda failure: None,
    watch: Callable[[Campaign], None] = lambda campaign: None,
    **search: Any,
) -> Campaign:
    """Search for violations for so many seconds, or until Ctrl-C. `search`: the fields of a `Checker`, such as seed.

    `tell` receives lines for people, `announce` every failure once it is shrunk, `watch` the campaign twice a second.
    `folder` and `replay` are those of the `Campaign`. Raises TargetError if the target cannot be obtained, CpbcgError
    if the database cannot be used.
    """
    open_database(database, ci=ci_database)
    engine = _engines[target] = resolve(target, allow_unpinned=allow_unpinned, progress=tell)
    search = {"profile": PROFILE, **search}
    checker, chosen = Checker(engine=engine, target=target, **search), tuple(REGISTRY if ids is None else ids)
    told: dict[str, Any] = {"tell": tell, "announce": announce, "folder": folder, "replay": replay}
    campaign = Campaign(checker=checker, ids=chosen, seconds=seconds, **told)
    # Hypothesis keeps notes on the code around it: not in the user's working directory.
    with TemporaryDirectory(prefix="cpbcg-") as home:
        team = Team(workers or os.cpu_count() or 1, searcher, (home, target, search, database, ci_database))
        try:
            run(campaign, team, watch)
        except KeyboardInterrupt:
            campaign.interrupted = True
        finally:
            team.stop()
    campaign.finish()
    return campaign


def run(campaign: Campaign, team: Team, watch: Callable[[Campaign], None]) -> None:
    while campaign.left > 0 or team.busy():
        for worker in team.idle():
            if campaign.left > 0 and (job := campaign.next_job()):
                worker.take(job, seconds=min(job.seconds + HANGS_AFTER_S, campaign.left + GRACE_S))
        if not team.busy():
            return  # nothing is left to ask
        for ended in team.ended(within_s=LOOK_EVERY_S):
            campaign.take(ended)
        watch(campaign)


def searcher(
    home: str, target: str, search: dict[str, Any], database: str | None, ci: Path | None
) -> Callable[[Job], Round]:
    """In a worker: what does its jobs."""
    set_hypothesis_home_dir(home)
    if target not in _engines:
        _engines[target] = resolve(target, allow_unpinned=True)
    checker = Checker(engine=_engines[target], target=target, **search)
    return Searcher(checker=checker, database=open_database(database, ci=ci)).do
