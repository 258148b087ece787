"""How hard to look. The number of examples ends a property, never the clock."""

from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings

from cpbcg_ref.asking import FAMILIES

PROFILES = {"dev": 0.3, "ci": 1.0, "nightly": 15.0}  # times the examples of a family
# Nothing around a run may change it: not $CI, a database, the clock or the host's speed.
SAME_EVERYWHERE: dict[str, Any] = {"database": None, "deadline": None, "derandomize": False}


def quiet_settings(profile: str, family: str, *, shrink: bool, **also: Any) -> settings:
    quiet: dict[str, Any] = {"print_blob": False, "report_multiple_bugs": False, "verbosity": Verbosity.quiet}
    quiet |= {"phases": (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)}
    examples = max(20, round(FAMILIES[family].examples * PROFILES[profile]))
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck), **quiet | SAME_EVERYWHERE | also)


def register(name: str) -> None:
    """Register our Hypothesis profiles and load one, also under $CI, where Hypothesis would load its own."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    for profile, scale in PROFILES.items():
        options: dict[str, Any] = {"max_examples": round(100 * scale), "suppress_health_check": slow}
        settings.register_profile(f"cpbcg-{profile}", print_blob=True, **SAME_EVERYWHERE, **options)
    settings.load_profile(f"cpbcg-{name}")
