"""An oracle that lies is noticed on a right engine: a violation, a checker that raises, or a witness that is lost.

A lie that only makes checkers milder cannot show there: it is noticed by the seeded faults and the wrong dispatchers
that are no longer caught.
"""

import importlib
import inspect
import pkgutil
import sys
from functools import wraps

import pytest
import toys_dispatch
from right import PARTS, answers, engine_for

from cpbcg_ref import oracles
from cpbcg_ref.invariants import REGISTRY

# What each lie makes of a right answer.
LIES = {
    "one more": lambda answer: answer + 1,
    "one less": lambda answer: answer - 1,
    "one key more": lambda keys: range(len(keys) + 1),
    "without the last": lambda answer: answer[:-1],
    "empty": lambda answer: type(answer)(),  # 0, False, () or ""
    "nothing": lambda answer: iter(()),
    "no time": lambda answer: 0.0,
    "opposite": lambda answer: not answer,
    "backwards": lambda answer: answer[::-1],
    "all for none": lambda answer: {"all": "none", "none": "all"}.get(answer, answer),
}
TOLD = {
    "buckets.refusals": ["without the last", "empty"],
    "buckets.fitting": ["without the last", "empty", "backwards"],
    "buckets.has_legal_split": ["empty", "opposite"],
    "graphs.tokens": ["one more", "one less", "empty"],
    "graphs.refusals": ["without the last", "empty"],
    "graphs.over": ["empty", "opposite"],
    "graphs.ruled_out": ["empty", "opposite"],
    "graphs.alike": ["empty"],
    "passes.status": ["empty", "all for none"],
    "passes.running_limit": ["one more", "empty"],
    "passes.max_running": ["one more", "one less", "empty"],
    "passes.max_size": ["one more", "one less", "empty"],
    "passes.max_waiting": ["one more", "one less", "empty"],
    "passes.free_slots": ["one more", "empty"],
    "passes.slot_condition": ["empty", "opposite"],
    "passes.queue_target": ["one more", "one less", "empty"],
    "passes.queue_short": ["empty", "opposite"],
    "passes.queue_may_be_short": ["empty", "opposite"],
    "passes.below_watermark": ["empty", "opposite"],
    "passes.any_below": ["empty", "opposite"],
    "passes.ran_out": ["empty", "opposite"],
    "passes.steps": ["nothing"],
    "passes.opened": ["no time"],
    "passes.attempt_size": ["one more", "one less", "empty"],
    "passes.recent_sizes": ["without the last"],
    "tokens.block_sizes": ["without the last", "empty"],
    "tokens.owned_tokens": ["without the last", "empty", "backwards"],
    "tokens.live_rows": ["without the last", "empty", "backwards"],
    "tokens.smallest_multiple": ["one more", "one less", "empty"],
    "tokens.places": ["without the last", "empty", "backwards"],
    "tokens.causal_keys": ["without the last", "one key more"],
    "tokens.shardable": ["empty", "opposite"],
}
UNJUDGED = {"buckets.verdicts"}  # only words, for `cpbcg explain` and for pictures, where snapshots hold it


def public_functions():
    """ "tokens.places" -> the function."""
    for found in pkgutil.iter_modules(oracles.__path__):
        module = importlib.import_module(f"{oracles.__name__}.{found.name}")
        for name, own in vars(module).items():
            if inspect.isroutine(inspect.unwrap(own)) and inspect.unwrap(own).__module__ == module.__name__:
                yield f"{found.name}.{name}", own


ORACLES = dict(public_functions())


def forget():
    for oracle in ORACLES.values():
        getattr(oracle, "cache_clear", lambda: None)()


@pytest.fixture
def put(monkeypatch):
    """put(right, wrong): the wrong function stands wherever the right one was imported to, until the test ends."""

    def put_everywhere(right, wrong):
        ours = [module for name, module in sys.modules.items() if name.startswith("cpbcg_ref.")]
        for module, name in [(m, n) for m in ours for n, own in vars(m).items() if own is right]:
            monkeypatch.setattr(module, name, wrong)
        forget()

    yield put_everywhere
    forget()


# Each part on a right engine, and on a further one where it needs that to meet all its witnesses.
TRIED = [
    (name, index, part, engine)
    for name, index, part in PARTS
    for engine in dict.fromkeys(engine_for(part, witness) for witness in (None, *part.witnesses))
]
SERVES = {"graphs": "dispatch", "passes": "passes skewed-passes last-pass attempts"}


def complaints(oracle=""):
    """Whatever keeps a part from passing, one entry per part and reason; the parts that this oracle serves first."""
    families = SERVES.get(oracle.partition(".")[0], "").split()
    for name, index, part, engine in sorted(TRIED, key=lambda entry: entry[2].family not in families):
        lost = set(part.demanded(engine.contract))
        for case, seen in answers(engine, part.family):
            try:
                violated = part.check(case, seen, engine.contract)
                lost -= {witness for witness in lost if part.witnesses[witness](case, seen)}
            except Exception:
                violated = True
            if violated:
                yield name, index, ""
                break
        else:
            yield from ((name, index, witness) for witness in lost)


@pytest.fixture(scope="module")
def usual():
    """Complaints without any lie: advice that the reference's seed policy does not follow."""
    found = set(complaints())
    assert all(REGISTRY[name].level == "SHOULD" and not witness for name, _, witness in found)
    return found


@pytest.mark.parametrize(("oracle", "lie"), [(oracle, lie) for oracle, lies in TOLD.items() for lie in lies])
def test_a_lie_is_noticed(oracle, lie, put, usual):
    right = ORACLES[oracle]
    put(right, wraps(right)(lambda *args, **named: LIES[lie](right(*args, **named))))
    assert next((found for found in complaints(oracle) if found not in usual), None)


def test_a_lie_that_makes_the_worst_graph_the_best_spares_a_dispatcher_that_takes_it(put):
    right, wrong = ORACLES["graphs.alike"], toys_dispatch.Largest()
    (judge,) = (part.check for part in REGISTRY["select.minimal"].parts if part.family == "dispatch")
    seen = answers(wrong, "dispatch")
    assert any(judge(*one, wrong.contract) for one in seen)
    put(right, wraps(right)(lambda *args: LIES["backwards"](right(*args))))
    assert not any(judge(*one, wrong.contract) for one in seen)


def test_every_oracle_is_lied_about():
    assert set(ORACLES) == set(TOLD) | UNJUDGED


def test_without_a_lie_nothing_is_noticed(put, usual):
    right = ORACLES["tokens.places"]
    put(right, wraps(right)(lambda *args: right(*args)))
    assert set(complaints()) == usual
