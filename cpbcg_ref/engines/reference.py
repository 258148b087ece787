"""The reference as an engine like any other: it is asked through the same methods and judged by the same checkers."""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cpbcg_ref
from cpbcg_ref import answers, cases
from cpbcg_ref.engines.contract import Contract

CORE = ("errors", "layout", "capture", "replay", "delayer")
STRATEGIES = ("zigzag", "interleave")


class ReferenceServer:
    """A captured ladder; every rank would build the same table."""

    def __init__(self, server: cases.Server, library: Any) -> None:
        self.server, self.library = server, library
        settings = asdict(server)
        self.table = library.CaptureTable(ladder=settings.pop("capture_num_tokens"), **settings)

    def _asked(self, batch: cases.Batch) -> dict[str, Any]:
        return {"lengths": known(batch), "num_tokens": batch.num_tokens, "table": self.table}

    def captured(self, cp_rank: int) -> answers.Captured:
        requests, rows = tuple(self.table.requests.items()), tuple(self.table.bucket_local_tokens.items())
        ladder = self.table.capture_num_tokens
        return answers.Captured(requests=requests, bucket_local_tokens=rows, capture_num_tokens=ladder)

    def is_cp_active(self, batch: cases.Batch, cp_rank: int) -> bool:
        return self.library.is_cp_active(known(batch), **self.table.group)

    def can_run_graph(self, batch: cases.Batch, cp_rank: int) -> bool:
        return self.library.can_run_graph(**self._asked(batch))

    def select(self, batch: cases.Batch, cp_rank: int) -> int | None:
        return self.library.select_replay_bucket_for_batch(**self._asked(batch))

    def load_batch(self, batch: cases.Batch, cp_rank: int) -> answers.Loaded:
        replay = self.library.load_batch(**self._asked(batch))
        return answers.Loaded(**vars(replay) | {"live_rows": replay.live_rows[cp_rank]})


class ReferenceDelayers:
    """One state and one clock per DP rank. Without DP attention each rank is a replica that decides alone."""

    def __init__(self, config: cases.DelayerConfig, library: Any, *, policy: str) -> None:
        self.library = library
        self.config = library.DelayerConfig(**asdict(config), policy=policy)
        self.states: list[Any] = []

    def step(self, reports: cases.Pass) -> list[answers.Verdict | answers.Raised]:
        states = self.states or [self.library.DelayerState()] * len(reports)
        ranks = list(zip(states, reports, strict=True))
        rows = [self.row(state, report) for state, report in ranks]
        made = [self.decide(table, *rank) for table, rank in zip(self.gathered(rows), ranks, strict=True)]
        self.states = [decision.state for decision in made]
        return list(map(verdict, made))

    def row(self, state: Any, report: cases.RankReport) -> Any:
        """What a rank brings to the gather."""
        return self.library.make_report(state, self.config, **vars(report))

    def gathered(self, rows: list[Any]) -> list[list[Any]]:
        """The table that each rank sees."""
        return [rows] * len(rows) if self.config.enable_dp_attention else [[row] for row in rows]

    def decide(self, table: list[Any], state: Any, report: cases.RankReport) -> Any:
        return self.library.negotiate(table, state, self.config, now_ms=report.now_ms)


class ReferenceAttempts:
    """The window of recent attempts of one rank."""

    def __init__(self, library: Any) -> None:
        self.window = library.RecentAttempts()

    def step(self, attempt: cases.Attempt) -> int:
        self.window = self.window.after(**vars(attempt))
        return self.window.max_prefill_bs


def known(batch: cases.Batch) -> tuple[int, ...] | None:
    return batch.lengths if batch.lengths_known else None


def verdict(decision: cpbcg_ref.Decision) -> answers.Verdict:
    told = vars(decision) | vars(decision.state)
    del told["state"], told["started_ms"]
    return answers.Verdict(**told, episode_open=decision.state.delayed_passes > 0)


class Reference:
    """`group` is cp_size and strategy. `policy` is the delayer's: "seed" as specified, or "hardened".

    `library` is what is asked: `cpbcg_ref`, or a copy of it with something changed.
    """

    name = "reference"
    version = version("cpbcg")
    contract = Contract(strategies=STRATEGIES, graph_strategies=STRATEGIES, min_replay_bucket=True)
    roots = tuple(str(Path(cpbcg_ref.__file__).with_name(f"{module}.py")) for module in CORE)
    unavailable = {  # noqa: RUF012
        "data": "python -m gpu_conformance replays and compares data",
        "dispatch": "the reference chooses a bucket for a batch of prefills, not a graph for a step",
    }
    policy = "seed"
    library: Any = cpbcg_ref

    server, delayers, window = ReferenceServer, ReferenceDelayers, ReferenceAttempts

    def select_replay_bucket(self, **question: Any) -> int | None:
        return self.library.select_replay_bucket(**question)

    def start(self, server: cases.Server) -> ReferenceServer:
        return self.server(server, self.library)

    def start_attempts(self) -> ReferenceAttempts:
        return self.window(self.library)

    def is_cp_active(self, batch: cases.Batch, *, cp_rank: int, **group: Any) -> bool:
        return self.library.is_cp_active(known(batch), **group)

    def logical_rows(self, batch: cases.Batch, **group: Any) -> list[int]:
        return list(self.library.per_rank_logical_tokens(batch.lengths, **group))

    def shard(self, batch: cases.Batch, payload: list[int], **group: Any) -> list[list[int]]:
        rows, pad = group.pop("captured_rows", None), self.contract.padding_value
        return list(map(list, self.library.shard(payload, batch.lengths, pad=pad, rows=rows, **group)))

    shard_positions = shard

    def gather(self, batch: cases.Batch, rows: list[list[int]], **group: Any) -> list[list[int]]:
        group.pop("captured_rows", None)  # the rows say how many they are
        return [list(self.library.gather(rows, batch.lengths, **group))] * len(rows)

    def kv_segments(self, batch: cases.Batch, **group: Any) -> list[list[tuple[int, int]]]:
        return list(map(list, self.library.kv_segments(batch.lengths, prefixes=batch.prefixes, **group)))

    def required_local_tokens(self, lengths: list[int] | None, *, cp_rank: int, **group: Any) -> int | None:
        return self.library.required_local_tokens(lengths, **group)

    def start_delayers(self, config: cases.DelayerConfig) -> ReferenceDelayers:
        return self.delayers(config, self.library, policy=self.policy)

    def votes(self, mid_chunk: tuple[bool, ...], waiting: tuple[int, ...]) -> list[bool]:
        config = self.library.DelayerConfig(dp_size=1, max_delay_passes=1, max_running_requests=1, policy=self.policy)
        fresh: dict[str, Any] = {"config": config, "now_ms": 0.0, "token_usage": 1.0}
        fresh["state"] = self.library.DelayerState()
        ranks = zip(mid_chunk, waiting, strict=True)
        rows = [self.library.make_report(prefillable=new > 0, chunk_in_progress=chunk, **fresh) for chunk, new in ranks]
        return [row.prefillable for row in rows]


class Hardened(Reference):
    """The reference with a delayer that has none of the weaknesses that the SHOULD ids name."""

    name = "reference-hardened"
    policy = "hardened"
