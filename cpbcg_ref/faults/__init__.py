"""The catalogue of seeded faults and of right variants: `FAULTS` and `VARIANTS`, by key.

Public bugs that are not here: those of replayed data, which need tensors (`gpu_conformance/plants.py`); a graph that is
captured for one forward mode and replayed under another (sglang#20441), since the reference has no modes; a slot
condition that is never met, so that nothing ever coalesces (sglang#23709, #23189), since no invariant demands a delay.
"""

from cpbcg_ref.faults import attempts as attempts
from cpbcg_ref.faults import capture as capture
from cpbcg_ref.faults import delay_conditions as delay_conditions
from cpbcg_ref.faults import delay_state as delay_state
from cpbcg_ref.faults import layout as layout
from cpbcg_ref.faults import negotiation as negotiation
from cpbcg_ref.faults import negotiation_variants as negotiation_variants
from cpbcg_ref.faults import replay as replay
from cpbcg_ref.faults import required as required
from cpbcg_ref.faults import selection as selection
from cpbcg_ref.faults import variants as variants
from cpbcg_ref.faults.model import FAULTS, VARIANTS, Fault, Variant, public

__all__ = ["FAULTS", "VARIANTS", "Fault", "Variant", "public"]
