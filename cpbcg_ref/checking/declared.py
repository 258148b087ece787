"""What an adapter declares about itself, and what contradicts it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpbcg_ref.answers import Raised
from cpbcg_ref.checking.calls import plain, sharding
from cpbcg_ref.engines.contract import METHODS, Contract
from cpbcg_ref.engines.reference import STRATEGIES


def wrong_attribute(engine: Any) -> str | None:
    """Of those that `resolve` does not look at."""
    roots, unavailable = getattr(engine, "roots", None), getattr(engine, "unavailable", {})
    if not isinstance(roots, (tuple, list)) or not roots:
        return f"roots must be a non-empty tuple of paths, it is {roots!r}: without it no exception is the engine's"
    if absent := [str(root) for root in roots if not Path(root).exists()]:
        return f"root {absent[0]!r} does not exist"
    if not isinstance(unavailable, Mapping) or not all(unavailable.values()):
        return f"unavailable is {unavailable!r}: it is a dict that has a reason for each capability in it"
    if unknown := set(unavailable) - set(METHODS):
        return f"unavailable names {min(unknown)}, the capabilities are {', '.join(METHODS)}"
    return None


def nothing_ran(engine: Any) -> str:
    named = ", ".join(map(str, engine.roots))
    return f"no function under roots ({named}) ran: name the files or folders of the engine that the adapter calls"


def wrong_contract(contract: Contract) -> str | None:
    """What no engine can mean."""
    for field in ("strategies", "graph_strategies", "cp_sizes"):
        if not isinstance(value := getattr(contract, field), (tuple, list)):
            return f"{field} is {value!r}: write a tuple, ({value!r},)"
    layouts = (*contract.strategies, *contract.graph_strategies)
    if unknown := [name for name in layouts if name not in STRATEGIES]:
        return f"it declares the strategy {unknown[0]!r}: the known ones are {' and '.join(STRATEGIES)}"
    if silent := [name for name in layouts if name not in contract.alignment]:
        return f"alignment has no entry for {silent[0]}: it is 1, or more where rows are padded to a multiple"
    if contract.blocks not in ("balanced", "ceil"):
        return f"blocks is {contract.blocks!r}: it is 'balanced' or 'ceil'"
    if not contract.strategies or not contract.cp_sizes:
        return "strategies and cp_sizes must name one at least"
    return None


def broken_promise(engine: Any) -> str | None:
    """A layout or a group size that the contract declares and the engine refuses for a batch of the plainest kind."""
    contract = engine.contract
    for strategy in contract.strategies:
        for ranks in (size for size in contract.cp_sizes if size > 1):
            answer, _ = sharding(engine, plain(contract, ranks=ranks), ranks, strategy).made(engine)
            if isinstance(answer, Raised):
                what = f"it declares {strategy} and groups of {ranks}, where the engine raised {answer}"
                return f"{what}: leave out of strategies or cp_sizes what the engine does not have"
    return None
