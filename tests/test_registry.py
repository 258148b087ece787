"""The registry against the table of the specification, written down here once more."""

from itertools import groupby

import pytest

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.pictures import PICTURES

MUST = """
layout.bijection layout.conserves layout.roundtrip layout.companions layout.causal layout.nonempty layout.balance
layout.bad-input capacity.required capacity.no-overflow select.fits-tokens select.fits-rows select.captured
select.padding-bound select.minimal select.complete select.pure select.without-cp agree.bucket agree.mode
agree.collectives replay.admitted-implies-runs replay.safe-fallback capture.legal delay.agree delay.bounded-passes
delay.bounded-time delay.justified delay.target-capacity delay.recent-size delay.watermark delay.reason
delay.skip-first delay.monotone data.replay-equals-eager data.history-free data.padding-inert data.in-bounds
"""
SHOULD = """
select.monotone delay.budget delay.no-idle-hold delay.reachable-target delay.own-slots delay.chunk-counts
"""


def test_every_id_is_there_once_with_its_level():
    levels = dict.fromkeys(MUST.split(), "MUST") | dict.fromkeys(SHOULD.split(), "SHOULD")
    assert len(levels) == 44
    assert {id: one.level for id, one in REGISTRY.items()} == levels


def test_ids_stand_in_the_order_of_the_specification():
    families = [family for family, _ in groupby(id.split(".")[0] for id in REGISTRY)]
    assert families == ["layout", "capacity", "select", "agree", "replay", "capture", "delay", "data"]


@pytest.mark.parametrize("id", REGISTRY)
def test_an_invariant_is_stated_and_can_be_asked(id):
    one = REGISTRY[id]
    assert one.id == id
    assert len(one.statement.split()) > 3
    assert all(part.family in FAMILIES for part in one.parts)


def test_statement_and_sources_are_read_off_the_checker():
    one = REGISTRY["agree.bucket"]
    assert one.statement == "All ranks choose the same bucket, from shared values only"
    assert one.sources == ("sglang#37561", "sglang#37933", "vllm#25906", "Megatron-LM#3033")


@pytest.mark.parametrize("id", [id for id in REGISTRY if not id.startswith("data.")])
def test_every_part_names_an_interesting_case_that_must_come_up(id):
    assert all(part.witnesses for part in REGISTRY[id].parts)


@pytest.mark.parametrize("id", [id for id in REGISTRY if id.startswith("data.")])
def test_data_is_never_a_pass_by_accident(id):
    with pytest.raises(NotImplementedError, match="cannot be judged"):
        REGISTRY[id].parts[0].check(None, None, None)


def test_every_kind_of_case_has_a_picture():
    assert {family.case for family in FAMILIES.values()} <= set(PICTURES)
