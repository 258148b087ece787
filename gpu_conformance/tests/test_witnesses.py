"""What counts as having come up, batch by batch; no workload is asked for what it does not bring."""

import pytest
from made_run import served

from gpu_conformance.witnesses import OVERFLOW, WITNESSES, Batch, met

CAPTURED = {15: 8, 32: 16}  # two ranks; three requests of 5 need 12 rows, 15 captured 8


def batch(lengths=(8, 8), bucket=32, **told):
    told = {"prefixes": (0,) * len(lengths), "chunked": False, "earlier": 0} | told
    return Batch(lengths=lengths, bucket=bucket, captured=CAPTURED, cp_size=2, **told)


@pytest.mark.parametrize(
    ("witness", "yes", "no"),
    [
        (OVERFLOW, batch((5, 5, 5)), batch((15,))),
        (OVERFLOW, batch((5, 5, 5), bucket=0), batch((3, 3, 3, 3, 3))),  # too short for two ranks
        (OVERFLOW, batch((5, 5, 5)), batch((5, 5, 5, 200))),  # no bucket at all
        ("replayed", batch(), batch(bucket=0)),
        ("eager", batch(bucket=0), batch()),
        ("a full bucket", batch((16, 16)), batch((16, 15))),
        ("a cached prefix", batch(prefixes=(0, 4)), batch()),
        ("a cached prefix", batch(prefixes=(0, 4)), batch(prefixes=(0, 4), bucket=0)),
        ("a prompt that goes on", batch(prefixes=(0, 4), chunked=True), batch(prefixes=(0, 4))),
        ("a prompt that goes on", batch(prefixes=(0, 4), chunked=True), batch(chunked=True)),
        ("after a larger batch in the same bucket", batch(earlier=17), batch(earlier=16)),
        ("padding rows", batch(), batch((16, 16))),
    ],
)
def test_a_witness_is_met_by_its_interesting_batch_alone(witness, yes, no):
    function = next(named[witness] for named in WITNESSES.values() if witness in named)
    assert (function(yes), function(no)) == (True, False)


def test_batches_that_were_served_are_counted():
    assert met("agree.mode", [served(batches=8)]) == {"replayed": 7, "eager": 1}


def test_larger_batches_count_in_their_own_bucket_only():
    """Served are 1, 192, 32, 48, 64 and 96 tokens, then 3: that and those below 192 come after a larger one."""
    assert met("data.history-free", [served(batches=9)]) == {"after a larger batch in the same bucket": 6}
    one = served(batches=9)
    apart = [(number, 32 + 16 * number) for number in range(8)]
    one.seen[0].chosen[:] = apart
    assert met("data.history-free", [one]) == {"after a larger batch in the same bucket": 0}


def test_a_group_that_did_not_end_has_met_nothing():
    assert met("agree.mode", [served(failure={"rank": 0})]) == {"replayed": 0, "eager": 0}
