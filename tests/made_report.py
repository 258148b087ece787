"""A finished check made by hand: every outcome once, no engine asked."""

import dataclasses

from cpbcg_ref.cases import Batch, DelayerConfig, PassesCase, ReplayCase, Server
from cpbcg_ref.checking.results import Counterexample, Report, Result

PYTHON = (
    "ReplayCase(server=Server(cp_size=4, capture_num_tokens=(27, 48), context_length=64, strategy='zigzag', "
    "max_padding_factor=2, min_replay_bucket=0), batches=(Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0), "
    "lengths_known=True),))"
)
CASE = ReplayCase(
    server=Server(cp_size=4, capture_num_tokens=(27, 48), context_length=64),
    batches=(Batch(lengths=(9, 9, 9), prefixes=(0, 0, 0)),),
)
PASSES = PassesCase(config=DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8), passes=())
FOUND = Counterexample(
    case={"kind": "ReplayCase"} | dataclasses.asdict(CASE),
    python=PYTHON,
    picture="rank  rows  needs\n   0     9     16\n   1     6     16",
)
RESULTS = (
    Result(invariant="layout.bijection", level="MUST", outcome="pass", examples=150, seconds=0.31),
    Result(
        invariant="capacity.no-overflow",
        level="MUST",
        outcome="fail",
        examples=31,
        seconds=1.25,
        message="16 live rows on rank 0 but 8 captured in bucket 27 for lengths [9, 9, 9]: the simplest overflow",
        counterexample=FOUND,
        reproduce="cpbcg check sglang==0.5.17 --select capacity.no-overflow --profile ci --seed 0",
        witnesses={"remainders pile up": 3},
        shares={"remainders pile up": 0.0968},
        stopped="first failure at example 31",
        searched=2.5,
    ),
    Result(
        invariant="select.minimal",
        level="MUST",
        outcome="unwitnessed",
        examples=400,
        message="never came up in 400 examples: a smaller bucket holds the tokens but not the rows",
    ),
    Result(invariant="replay.safe-fallback", level="MUST", outcome="error", message="KeyError: 'cp'"),
    Result(
        invariant="delay.budget",
        level="SHOULD",
        outcome="fail",
        examples=12,
        message="rank 1 waited 12 passes",
        counterexample=dataclasses.replace(
            FOUND, case={"kind": "PassesCase"} | dataclasses.asdict(PASSES), picture="pass  verdict\n   0  delay"
        ),
        reproduce="cpbcg check sglang==0.5.17 --select delay.budget --profile ci --seed 0",
    ),
    Result(invariant="data.in-bounds", level="MUST", outcome="skip", message="the adapter has no replay_data"),
    Result(invariant="data.history-free", level="MUST", outcome="skip", message="the adapter has no replay_data"),
)
EXECUTED = ("sglang/srt/cp.py:Layout.rows", "sglang/srt/cp.py:shard", "sglang/srt/delayer.py:negotiate")


def made_report(*, results=RESULTS, executed=EXECUTED, **options):
    facts = {"target": "sglang==0.5.17", "engine": "sglang", "version": "0.5.17", "profile": "ci", "seed": 0}
    return Report(results=tuple(results), executed=executed, seconds=4.2, **facts, **options)


def only(*outcomes_and_levels):
    """One result per (outcome, level)."""
    numbered = enumerate(outcomes_and_levels)
    return tuple(
        Result(invariant=f"x.{'abcdefgh'[i]}", level=level, outcome=outcome, message=f"{outcome} {level}")
        for i, (outcome, level) in numbered
    )
