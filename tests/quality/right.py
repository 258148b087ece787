"""Right engines, and their answers to some cases of every family: what a changed checker or oracle is tried on."""

from dataclasses import replace
from functools import cache

import toys
import toys_dispatch
from hypothesis import HealthCheck, Phase, given, reject, seed, settings

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.single import why_not
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.strategies import cases_for

QUICK = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))

EXAMPLES = {"dispatch": 400}  # some of its interesting cases are rare


class Picky(toys.Toy):
    """Its caller chooses what lengths are padded to a multiple of; refused is what would leave tokens over. Refused are
    cumulative lengths of a fixed shape too."""

    contract = replace(toys.Toy.contract, padding_factor=True)
    roots = (*toys.Toy.roots, __file__)

    def shard(self, batch, payload, *, padding_factor=0, **how):
        if padding_factor % (2 * how["cp_size"]):
            raise ValueError("tokens would be left over")
        return super().shard(batch, payload, **how)

    def shard_lengths(self, batch, payload, cumulative, **how):
        if cumulative[-1] in cumulative[:-1]:
            raise ValueError("the last sequence is empty")
        return super().shard_lengths(batch, payload, cumulative, **how)


# The first of them that can be asked about a part is asked about it.
RIGHT = (Reference(), Picky(), toys_dispatch.Toy())
PARTS = [
    (name, index, part)
    for name, invariant in REGISTRY.items()
    for index, part in enumerate(invariant.parts)
    if part.family != "data"
]
WITNESSES = [(name, index, witness) for name, index, part in PARTS for witness in part.witnesses]


def engine_for(part, witness=None):
    """A right engine that can be asked about this part, one that can meet the witness; StopIteration without any."""
    able = (engine for engine in RIGHT if not why_not(engine, part))
    return next(engine for engine in able if not witness or witness in part.demanded(engine.contract))


@cache
def answers(engine, family):
    """Pairs (case, answers), the same in every run."""
    pairs = []

    @seed(0)
    @settings(QUICK, max_examples=EXAMPLES.get(family, 100))
    @given(case=cases_for(family, engine.contract))
    def ask(case):
        try:
            pairs.append((case, FAMILIES[family].ask(engine, case)))
        except CaptureFailed:
            reject()

    ask()
    return pairs
