"""Seeded faults of layout, capture, selection and replay are caught by the ids they name; variants by none."""

import re

import pytest
from small_cases import SMALL

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.checking.run import Checker
from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults import FAULTS, VARIANTS, variants
from cpbcg_ref.invariants import REGISTRY

ASKED = ("layout", "bad-layout", "capture", "select", "select-pair", "replay")
IDS = [name for name, one in REGISTRY.items() if {part.family for part in one.parts} <= set(ASKED)]
KEYS = [key for key, fault in FAULTS.items() if fault.expected[0] in IDS]
RIGHT = [key for key, variant in VARIANTS.items() if variant.engine_type.__module__ == variants.__name__]
PUBLIC = [key for key in KEYS if FAULTS[key].source]
PROJECTS = (
    "sglang",
    "vllm",
    "Megatron-LM",
    "TransformerEngine",
    "pytorch",
    "verl",
    "SkyRL",
    "tokenspeed",
    "Megatron-Bridge",
)


def told(engine, family, case):
    try:
        return FAMILIES[family].ask(engine, case)
    except CaptureFailed:
        return "no bucket can be captured"


def families(ids):
    return [
        family for family in FAMILIES if any(part.family == family for name in ids for part in REGISTRY[name].parts)
    ]


@pytest.mark.parametrize("key", KEYS)
def test_a_fault_is_caught_by_every_id_that_it_names(key):
    fault = FAULTS[key]
    checker = Checker(engine=fault.engine, target=key, known=frozenset(fault.expected), recorded=0)
    for family in families(fault.expected):
        checker.sweep(family, fault.expected)
    assert {name: checker.result(name).outcome for name in fault.expected} == dict.fromkeys(fault.expected, "fail")


@pytest.mark.parametrize("key", RIGHT)
def test_a_right_variant_is_flagged_by_no_id(key):
    checker = Checker(engine=VARIANTS[key].engine, target=key, profile="dev", recorded=0)
    wrong = {name: result for name in IDS if (result := checker.check(name)).outcome in ("fail", "error")}
    assert {name: result.message for name, result in wrong.items()} == {}


def test_there_are_as_many_faults_as_were_promised():
    assert len(KEYS) >= 55
    assert len(PUBLIC) >= 28
    assert len(RIGHT) >= 6


def test_a_source_names_its_project():
    assert [FAULTS[key].source for key in PUBLIC if re.split("[#:]", FAULTS[key].source)[0] not in PROJECTS] == []


@pytest.mark.parametrize("key", RIGHT)
def test_a_right_variant_declares_or_answers_something_else_than_the_reference(key):
    engine, reference = VARIANTS[key].engine, Reference()
    asked = ((family, size) for family, size in (("layout", 10), ("capture", 1), ("replay", 2)))
    assert engine.contract != reference.contract or any(
        told(engine, family, case) != told(reference, family, case)
        for family, size in asked
        for case in SMALL[family](size, engine.contract)
    )
