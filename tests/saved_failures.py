"""Saved failures made by hand, and adapters that fail, pass, break and die on them."""

import dataclasses

from cpbcg_ref import cases
from cpbcg_ref.checking.results import Counterexample, Result
from cpbcg_ref.checking.saved import save
from cpbcg_ref.checking.size import as_python

LADDER = {"capture_num_tokens": (27, 48), "bucket_local_tokens": ((27, 8), (48, 24))}
SELECT = cases.SelectCase(num_tokens=24, required_local_tokens=16, **LADDER)
VOTES = cases.VotesCase(mid_chunk=(False,), waiting=(1,))
ADAPTER = """
import os, sys
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.engines.reference import Reference

class Fine(Reference):
    name, version = "fine", "2"

class Wrong(Fine):  # the rows do not count
    name = "wrong"
    def select_replay_bucket(self, *, num_tokens, capture_num_tokens, **rest):
        return min((bucket for bucket in capture_num_tokens if bucket >= num_tokens), default=None)

class Breaks(Fine):
    name, roots = "breaks", ("/nowhere",)
    def select_replay_bucket(self, **asked):
        raise KeyError("rows")

class Dies(Fine):
    name = "dies"
    def select_replay_bucket(self, **asked):
        os._exit(3)
    def start(self, server):
        os._exit(3)

class Leaves(Fine):
    name, roots = "leaves", ("/nowhere",)
    def select_replay_bucket(self, **asked):
        sys.exit("bye")

class Without(Fine):
    name, unavailable = "without", {"selection": "no selector in this release"}

class Small(Wrong):
    contract = Contract(cp_sizes=(1, 2))

class Old(Wrong):
    contract, unavailable = Contract(graph_strategies=()), {"replay": "no CP graphs"}

class Starts(Fine):
    name, roots = "starts", (__file__,)
    def start(self, server):
        raise RuntimeError("out of memory")
"""


def failing(case, invariant="select.fits-rows", message="bucket 27 has 8 rows, 16 are needed", level="MUST"):
    found = Counterexample(
        case={"kind": type(case).__name__} | dataclasses.asdict(case), python=as_python(case), picture="(picture)"
    )
    return Result(invariant=invariant, level=level, outcome="fail", message=message, counterexample=found)


def saved(folder, case=SELECT, *args, target="adapter.py:Wrong", **options):
    """A failure in the folder, as a check would leave it."""
    found = {"target": target, "engine": "wrong", "version": "1", "profile": "ci", "seed": 7}
    return save(failing(case, *args, **options), folder, **found)
