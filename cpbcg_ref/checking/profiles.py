"""How hard to look. The number of examples ends a property, never the clock."""

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, Verbosity, settings

# Examples per family in the `ci` profile, chosen so that the whole suite ends within 20 s on two cores while each
# witness comes up in every seed tried. Families that cost little get more.
CI_EXAMPLES = {
    "layout": 150,
    "bad-layout": 100,
    "capture": 100,
    "select": 400,
    "select-pair": 200,
    "replay": 200,
    "passes": 250,
    "skewed-passes": 200,
    "last-pass": 250,
    "attempts": 60,
    "votes": 50,
    "data": 50,
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """`scale` multiplies CI_EXAMPLES; `rounds` bounds how often a family is asked again for an unmet witness."""

    name: str
    scale: float
    rounds: int = 4

    def examples(self, family: str) -> int:
        return max(20, round(CI_EXAMPLES[family] * self.scale))


PROFILES = {
    "dev": Profile(name="dev", scale=0.3),
    "ci": Profile(name="ci", scale=1.0),
    "nightly": Profile(name="nightly", scale=15.0),
}


def quiet_settings(*, max_examples: int, shrink: bool) -> settings:
    """Settings that depend on nothing around them: not on $CI, a database, the clock or the host's speed."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    return settings(
        max_examples=max_examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )


def register(name: str | None = None) -> None:
    """Register our Hypothesis profiles and load one, also under $CI, where Hypothesis would load its own."""
    for profile in PROFILES.values():
        settings.register_profile(
            f"cpbcg-{profile.name}",
            max_examples=round(100 * profile.scale),
            deadline=None,
            derandomize=False,
            database=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
    settings.load_profile(f"cpbcg-{name or os.environ.get('CPBCG_PROFILE', 'ci')}")
