"""Hypothesis strategies for the questions put to an engine, aimed at the edges where engines were seen to break.

They draw only what the engine's `Contract` allows: its group sizes, layouts, divisibility and shortest request.
"""

from typing import Any

from hypothesis import strategies as st

from cpbcg_ref.cases import Deployment
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.strategies.batches import bad_layout_cases, batches, layout_cases, replay_cases
from cpbcg_ref.strategies.dispatch import dispatch_cases
from cpbcg_ref.strategies.negotiation import attempts_cases, last_pass_cases, passes_cases, votes_cases
from cpbcg_ref.strategies.selection import capture_cases, select_cases, select_pair_cases, servers

__all__ = ["bad_layout_cases", "batches", "cases_for", "layout_cases", "replay_cases"]
__all__ += ["capture_cases", "select_cases", "select_pair_cases", "servers"]
__all__ += ["dispatch_cases"]
__all__ += ["attempts_cases", "last_pass_cases", "passes_cases", "votes_cases"]


def cases_for(family: str, contract: Contract, *, deployment: Deployment | None = None) -> st.SearchStrategy[Any]:
    """Cases of one family of `cpbcg_ref.asking.FAMILIES` for an engine with this contract.

    A deployment pins its server and its delayer. The answer is an empty strategy (`.is_empty`) where the
    question never comes up: the layout of a server without context parallelism, or one that the engine cannot shard.

    >>> from cpbcg_ref.cases import Server
    >>> without_cp = Server(cp_size=1, capture_num_tokens=(64,), context_length=64)
    >>> cases_for("layout", Contract(), deployment=Deployment(server=without_cp)).is_empty
    True
    """
    pinned = deployment or Deployment()
    server, delayer = pinned.server, pinned.delayer
    sizes = {server.cp_size}.intersection(contract.cp_sizes) if server else contract.cp_sizes
    shards = max(sizes, default=1) > 1 and (not server or server.strategy in contract.strategies)
    if family in ("layout", "bad-layout") and not shards:
        return st.nothing()
    if family == "dispatch":
        return dispatch_cases(contract) if contract.dispatchers and not deployment else st.nothing()
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "layout": layout_cases(contract, server),
        "bad-layout": bad_layout_cases(contract, server),
        "capture": capture_cases(contract, server),
        "select": select_cases(contract, server),
        "select-pair": select_pair_cases(contract, server),
        "replay": replay_cases(contract, server),
        "passes": passes_cases(config=delayer),
        "skewed-passes": passes_cases(skewed=True, config=delayer),
        "last-pass": last_pass_cases(config=delayer),
        "attempts": attempts_cases(),
        "votes": votes_cases(),
        "data": replay_cases(contract, server),
    }
    return strategies[family]
