"""Steps that are asked are steps that the engine can have, on ladders that it can have."""

from hypothesis import given, settings
from toys_dispatch import Toy

from cpbcg_ref.cases import Deployment, Server
from cpbcg_ref.checking.size import size
from cpbcg_ref.checking.smaller import smaller
from cpbcg_ref.engines.contract import Contract, Dispatcher
from cpbcg_ref.strategies import cases_for

BOTH = {"multiples": Dispatcher(modes=("FULL", "PIECEWISE"), tokens_per_decode=(3, 2), multiples=True)}
CONTRACT = Contract(dispatchers={**Toy.contract.dispatchers, **BOTH})


def legal(case):
    how, ladder = CONTRACT.dispatchers[case.setup], case.capture_num_tokens
    assert list(ladder) == sorted(set(ladder))
    assert min(ladder) > 0
    assert case.tokens_per_decode in how.tokens_per_decode
    assert not how.multiples or all(size % case.tokens_per_decode == 0 for size in ladder)
    assert not how.even or ladder[-1] == case.max_requests
    assert how.choosable or not (case.allowed or case.excluded)
    assert {*case.allowed, *case.excluded} <= set(how.modes)
    assert not (case.allowed or case.excluded) or len(case.ranks) == 1
    for step in case.ranks:
        assert 0 < step.decodes + len(step.prefills) <= case.max_requests
        assert all(length > 0 for length in step.prefills)
    return True


@given(cases_for("dispatch", CONTRACT))
@settings(max_examples=300)
def test_a_step_has_work_within_the_limits_of_its_server(case):
    assert legal(case)


@given(cases_for("dispatch", CONTRACT))
@settings(max_examples=100)
def test_what_is_tried_while_shrinking_is_smaller_and_still_legal(case):
    assert all(legal(one) and size(one) < size(case) for one in smaller(case, CONTRACT))


def test_engines_without_a_dispatcher_and_configurations_have_no_such_case():
    server = Server(cp_size=2, capture_num_tokens=(8,), context_length=8)
    assert cases_for("dispatch", Contract()).is_empty
    assert cases_for("dispatch", CONTRACT, deployment=Deployment(server=server)).is_empty
