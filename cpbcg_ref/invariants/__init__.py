"""Every id of the specification, once, in its order: `REGISTRY[id]` is an `Invariant`."""

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import filter as matching

from cpbcg_ref.errors import InvalidInput
from cpbcg_ref.invariants import capture, data, delay_reasons, delay_should, delay_trace, layout, replay, select, steps
from cpbcg_ref.invariants.model import REGISTERED, Invariant

# Each of these registers its own.
_FILES = (layout, replay, capture, select, steps, delay_reasons, delay_should, delay_trace, data)
_ORDER = ("layout", "capacity", "select", "agree", "replay", "capture", "delay", "data")
REGISTRY: dict[str, Invariant] = dict(sorted(REGISTERED.items(), key=lambda item: _ORDER.index(item[0].split(".")[0])))
assert len(REGISTRY) == 44, "the specification has 44 ids"


def ids_like(patterns: Iterable[str]) -> list[str]:
    """The ids that any of the patterns matches, in the registry's order: ids, "family.*", or several with commas.

    Raises InvalidInput for a pattern that matches none; it names the nearest ids.

    >>> ids_like(["capacity.*,layout.causal"])
    ['layout.causal', 'capacity.required', 'capacity.no-overflow']
    """
    wanted = [name.strip() for pattern in patterns for name in pattern.split(",")]
    for name in wanted:
        if not matching(REGISTRY, name):
            near = get_close_matches(name, REGISTRY, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cpbcg invariants` lists them"
            raise InvalidInput(f"no invariant is called {name!r}: {hint}")
    return [name for name in REGISTRY if any(matching([name], pattern) for pattern in wanted)]
