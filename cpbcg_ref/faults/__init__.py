"""The catalogue of seeded faults and of right variants: `FAULTS` and `VARIANTS`, by key."""

from cpbcg_ref.faults import selection
from cpbcg_ref.faults.model import FAULTS, VARIANTS, Fault, Variant

__all__ = ["FAULTS", "VARIANTS", "Fault", "Variant", "selection"]
