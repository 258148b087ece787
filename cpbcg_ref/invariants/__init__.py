"""Every id of the specification, once, in its order: `REGISTRY[id]` is an `Invariant`."""

from cpbcg_ref.invariants import agree, capacity, capture, data, delay, layout, replay, select
from cpbcg_ref.invariants.model import Invariant

_FILES = (layout, capacity, select, agree, replay, capture, delay, data)
_ALL = [invariant for file in _FILES for invariant in file.INVARIANTS]

REGISTRY: dict[str, Invariant] = {invariant.id: invariant for invariant in _ALL}
assert len(REGISTRY) == len(_ALL) == 44, "the specification has 44 ids"
