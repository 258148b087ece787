"""The catalogue of seeded faults and of right variants: `FAULTS` and `VARIANTS`, by key."""

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
from cpbcg_ref.faults.model import FAULTS, VARIANTS, Fault, Variant

__all__ = ["FAULTS", "VARIANTS", "Fault", "Variant"]
