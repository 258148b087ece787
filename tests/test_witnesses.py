"""The interesting cases of the batch families: each name is met by the first case and not by those next to it."""

import pytest
from test_invariants_layout import RIGHT
from toys import Toy

from cpbcg_ref.asking import FAMILIES
from cpbcg_ref.cases import (
    BadLayoutCase,
    Batch,
    CaptureCase,
    DelayerConfig,
    LayoutCase,
    PassesCase,
    RankReport,
    ReplayCase,
    SelectCase,
    SelectPairCase,
    Server,
)
from cpbcg_ref.checking import run
from cpbcg_ref.engines.reference import Hardened, Reference
from cpbcg_ref.invariants import REGISTRY


def batch(*lengths, prefix=0, known=True):
    return Batch(lengths=lengths, prefixes=(prefix,) * len(lengths), lengths_known=known)


def layout(*lengths, prefix=0, **options):
    return LayoutCase(cp_size=4, batch=batch(*lengths, prefix=prefix), **options)


def bad(*lengths, factor=0):
    return BadLayoutCase(cp_size=4, lengths=lengths, padding_factor=factor)


def capture(context, *ladder):
    return CaptureCase(server=Server(cp_size=4, capture_num_tokens=ladder, context_length=context))


def select(num_tokens, required, **rows):
    captured = {int(bucket[1:]): count for bucket, count in rows.items()}
    return SelectCase(
        num_tokens=num_tokens,
        required_local_tokens=required,
        capture_num_tokens=tuple(captured),
        bucket_local_tokens=tuple((bucket, count) for bucket, count in captured.items() if count),
    )


def replay(*batches, cp_size=4):
    server = Server(cp_size=cp_size, capture_num_tokens=(27, 32, 48), context_length=64)
    return ReplayCase(server=server, batches=batches)


SMALL = select(10, 4, b10=3, b16=8)
UNKNOWN_ROWS = select(10, 4, b10=None, b16=8)
BASE, FITTED, USELESS = SMALL, select(10, 4, b10=4, b16=8), select(10, 4, b10=3, b16=8, b21=8)
SINGLE, BESIDE = batch(32), batch(24, 10)  # buckets 32 and 48
FIT, EAGER, SHORT, UNKNOWN = batch(9, 9, 9), batch(8), batch(24, 3), batch(27, known=False)


@pytest.mark.parametrize(
    ("id", "name", "met", "unmet"),
    [
        ("layout.bijection", "several requests", layout(8, 8), [layout(8)]),
        ("layout.causal", "a prefix", layout(8, prefix=1), [layout(8)]),
        ("layout.roundtrip", "spare rows", layout(8, spare_rows=1), [layout(8)]),
        ("layout.nonempty", "at most two rows", layout(9), [layout(8, 8)]),
        (
            "layout.balance",
            "a length of even blocks",
            layout(9, 16),
            [layout(9, 15), layout(16, strategy="interleave"), layout(9, strategy="interleave")],
        ),
        (
            "layout.conserves",
            "a remainder above cp",
            layout(8, 13),
            [layout(8, 12), layout(16), layout(13, strategy="interleave")],
        ),
        (
            "layout.bad-input",
            "a factor that leaves tokens over",
            bad(3, 1, factor=6),
            [bad(3, 1, factor=8), bad(7, factor=4), bad(9), bad(factor=6)],
        ),
        ("layout.bad-input", "a length below cp", bad(9, 3), [bad(9, 0), bad(9, 4), bad(9)]),
        ("capacity.required", "remainders pile up", layout(9, 9, 9), [layout(8, 8), layout(27)]),
        ("capture.legal", "a bucket must be dropped", capture(16, 4, 16), [capture(16, 16), capture(16, 4)]),
        ("select.fits-tokens", "a bucket has too few tokens", select(10, 4, b9=8), [SMALL]),
        ("select.fits-rows", "a bucket has too few rows", SMALL, [select(10, 4, b10=4), select(10, 4, b9=3)]),
        ("select.captured", "a bucket has unknown rows", select(10, 4, b16=None), [SMALL]),
        ("select.padding-bound", "two times hit exactly", select(10, 4, b20=4), [SMALL, select(10, 4, b20=3)]),
        ("select.padding-bound", "over two times", select(10, 4, b21=4), [select(10, 4, b20=4)]),
        ("select.minimal", "two buckets fit", select(10, 4, b10=4, b16=4), [SMALL]),
        ("select.complete", "a bucket fits", SMALL, [select(10, 4, b10=3)]),
        (
            "select.monotone",
            "a change matters",
            SelectPairCase(base=BASE, more=FITTED),
            [SelectPairCase(base=BASE, more=USELESS), SelectPairCase(base=BASE, more=BASE)],
        ),
        (
            "select.monotone",
            "a change cannot matter",
            SelectPairCase(base=BASE, more=USELESS),
            [SelectPairCase(base=BASE, more=FITTED), SelectPairCase(base=BASE, more=BASE)],
        ),
        (
            "select.monotone",
            "a capture between two selections",
            SelectPairCase(base=UNKNOWN_ROWS, more=FITTED),
            [
                SelectPairCase(base=BASE, more=FITTED),
                SelectPairCase(base=BASE, more=USELESS),
                SelectPairCase(base=FITTED, more=select(10, 4, b10=4, b14=8, b16=8)),
                SelectPairCase(base=FITTED, more=FITTED),
            ],
        ),
        (
            "capacity.no-overflow",
            "the bucket that tokens alone pick would overflow",
            replay(FIT),
            [replay(batch(32)), replay(EAGER), replay(SHORT), replay(batch(9, 9, 9, known=False)), replay(batch(9))],
        ),
        (
            "select.without-cp",
            "a bucket fits without cp",
            replay(FIT, cp_size=1),
            [replay(FIT), replay(batch(9), cp_size=1)],
        ),
        (
            "agree.mode",
            "a batch is replayed",
            replay(FIT, EAGER),
            [replay(EAGER), replay(SHORT), replay(FIT, cp_size=1)],
        ),
        (
            "replay.admitted-implies-runs",
            "a batch comes back after another bucket",
            replay(FIT, EAGER, SINGLE, FIT),
            [
                replay(FIT, FIT, SINGLE),
                replay(FIT, EAGER, FIT),
                replay(FIT, BESIDE, FIT),
                replay(FIT, SINGLE, BESIDE),
                replay(EAGER, FIT, SINGLE, EAGER),
                replay(FIT, SINGLE, FIT, cp_size=1),
            ],
        ),
        ("replay.safe-fallback", "unknown lengths", replay(UNKNOWN), [replay(FIT)]),
        (
            "replay.safe-fallback",
            "an inactive batch",
            replay(SHORT),
            [replay(FIT), replay(batch()), replay(SHORT, cp_size=1)],
        ),
    ],
)
def test_an_interesting_case_is_told_from_its_neighbours(id, name, met, unmet):
    part = next(part for part in REGISTRY[id].parts if name in part.witnesses)
    witness = part.witnesses[name]
    answers = [RIGHT if "layout" in part.family else FAMILIES[part.family].ask(Toy(), case) for case in (met, *unmet)]
    assert [witness(case, seen) for case, seen in zip((met, *unmet), answers, strict=True)] == [
        True,
        *(False for _ in unmet),
    ]


@pytest.mark.parametrize(("case", "met"), [(replay(FIT), True), (replay(EAGER), False), (replay(SHORT), False)])
def test_a_bucket_fits_a_batch_by_the_specification(case, met):
    witness = REGISTRY["select.complete"].parts[1].witnesses["a bucket fits a batch"]
    assert witness(case, FAMILIES["replay"].ask(Toy(), case)) == met


def passes(*statuses):
    """One pass per word: who of two ranks is prefillable."""
    who = {"all": (True, True), "mixed": (True, False), "none": (False, False)}
    given = tuple(tuple(RankReport(prefillable=one) for one in who[status]) for status in statuses)
    return PassesCase(config=DelayerConfig(dp_size=2, max_delay_passes=3, max_running_requests=8), passes=given)


def alone(*, ratio=0.5, **report):
    given = {"prefillable": True, "running_batch": 1, "max_prefill_bs": 1, **report}
    config = DelayerConfig(dp_size=1, max_delay_passes=3, max_running_requests=8, queue_min_ratio=ratio)
    return PassesCase(config=config, passes=((RankReport(**given),),))


@pytest.mark.parametrize(
    ("id", "name", "met", "unmet"),
    [
        (
            "delay.bounded-passes",
            "all three kinds of status",
            passes("none", "all", "all", "mixed"),
            [passes("none", "all"), passes("mixed", "all"), passes("none", "mixed")],
        ),
        (
            "delay.justified",
            "target truncated to 0",
            alone(),
            [
                alone(ratio=1.0),
                alone(ratio=None),
                alone(running_batch=0),
                alone(waiting_queue_len=1),
                alone(max_prefill_bs=8),
                alone(prefillable=False),
            ],
        ),
    ],
)
def test_an_interesting_pass_is_told_from_its_neighbours(id, name, met, unmet):
    witness = REGISTRY[id].parts[0].witnesses[name]
    found = [witness(case, FAMILIES["passes"].ask(Reference(), case)) for case in (met, *unmet)]
    assert found == [True] + [False] * len(unmet)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("data", "dispatch")])
def test_every_witness_comes_up_in_the_first_round(monkeypatch, family):
    monkeypatch.setattr(run, "ROUNDS", 1)
    checker = run.Checker(engine=Hardened(), target="reference:hardened", seed=1, recorded=0)
    checker.sweep(family, REGISTRY)
    asked = {key: one for key, one in checker.judged.items() if one.message != "the adapter has no shard_lengths"}
    assert {result.outcome for result in asked.values()} == {"pass"}, asked
