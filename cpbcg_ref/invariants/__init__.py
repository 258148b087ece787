"""Every id of the specification, once, in its order: `REGISTRY[id]` is an `Invariant`."""

from cpbcg_ref.invariants import capture, data, delay_reasons, delay_should, delay_trace, layout, replay, select
from cpbcg_ref.invariants.model import REGISTERED, Invariant

_FILES = (layout, replay, capture, select, delay_reasons, delay_should, delay_trace, data)  # each registers its own
_ORDER = ("layout", "capacity", "select", "agree", "replay", "capture", "delay", "data")
REGISTRY: dict[str, Invariant] = dict(sorted(REGISTERED.items(), key=lambda item: _ORDER.index(item[0].split(".")[0])))
assert len(REGISTRY) == 44, "the specification has 44 ids"
