"""Each checker of the selector on answers worked out by hand, and on a selector that gets that one thing wrong."""

from dataclasses import replace

import pytest
from toys import Toy, judged

from cpbcg_ref.answers import Raised, SelectPairSeen, SelectSeen
from cpbcg_ref.cases import SelectCase, SelectPairCase
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY

PLAIN, WITH_FLOOR = Contract(), Contract(min_replay_bucket=True)
GOLDEN = SelectCase(
    num_tokens=2048,
    required_local_tokens=520,
    capture_num_tokens=(2048, 2304, 2560, 2816),
    bucket_local_tokens=((2048, 512), (2304, 576), (2560, 640)),
)
OVERFLOW = replace(GOLDEN, capture_num_tokens=(2048, 2304), bucket_local_tokens=((2048, 512), (2304, 516)))
TWICE = SelectCase(
    num_tokens=1024, required_local_tokens=256, capture_num_tokens=(2048,), bucket_local_tokens=((2048, 512),)
)
OVER = replace(TWICE, num_tokens=1023)
TINY = SelectCase(
    num_tokens=5,
    required_local_tokens=2,
    capture_num_tokens=(4, 16),
    bucket_local_tokens=((4, 2), (16, 4)),
    min_replay_bucket=16,
)
NEED = "2048 tokens, 520 rows"
BROKEN = Raised("KeyError", "2048", "bcg.py:9")
OF_ONE_ANSWER = [id for id, one in REGISTRY.items() if one.parts[0].family == "select"]


def verdict(id, case, answer, contract=PLAIN, **seen):
    return REGISTRY[id].parts[0].check(case, SelectSeen(**{"answer": answer, "again": answer, **seen}), contract)


@pytest.mark.parametrize("id", OF_ONE_ANSWER)
@pytest.mark.parametrize(
    ("case", "answer", "contract"),
    [
        (GOLDEN, 2304, PLAIN),
        (OVERFLOW, None, PLAIN),
        (TWICE, 2048, PLAIN),
        (OVER, None, PLAIN),
        (TINY, 16, WITH_FLOOR),
        (TINY, None, PLAIN),
        (replace(GOLDEN, required_local_tokens=512), 2048, PLAIN),
    ],
)
def test_the_golden_choices_are_accepted(id, case, answer, contract):
    assert verdict(id, case, answer, contract) is None


@pytest.mark.parametrize(
    ("id", "case", "answer", "sentence"),
    [
        ("fits-tokens", GOLDEN, 1024, f"bucket 1024 for {NEED}: too few tokens: 2048 needed"),
        ("fits-rows", GOLDEN, 2048, f"bucket 2048 for {NEED}: too few rows: 512 captured, 520 needed"),
        ("captured", GOLDEN, 2816, f"bucket 2816 for {NEED}: not captured, or rows unknown"),
        ("captured", OVERFLOW, 2560, f"bucket 2560 for {NEED}: not captured, or rows unknown"),
        ("padding-bound", OVER, 2048, "bucket 2048 for 1023 tokens, 256 rows: over 2x: at most 2046 tokens allowed"),
        ("padding-bound", TINY, 16, "bucket 16 for 5 tokens, 2 rows: over 2x: at most 10 tokens allowed"),
        ("minimal", GOLDEN, 2560, f"bucket 2560 for {NEED}: 2304 is enough"),
        ("complete", GOLDEN, None, f"eager for {NEED}: bucket 2304 fits"),
        ("complete", TWICE, None, "eager for 1024 tokens, 256 rows: bucket 2048 fits"),
    ],
)
def test_one_wrong_choice_is_told_with_its_numbers(id, case, answer, sentence):
    assert verdict(f"select.{id}", case, answer) == sentence


@pytest.mark.parametrize("id", OF_ONE_ANSWER)
def test_a_selector_that_raises_has_not_answered(id):
    assert verdict(id, GOLDEN, BROKEN) == "selector raised KeyError: 2048"


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ({"again": 2560}, "bucket 2304, asked again bucket 2560 (2048 tokens)"),
        ({"again": None}, "bucket 2304, asked again eager (2048 tokens)"),
        ({"mutated": "bucket_local_tokens"}, "the selector changed its argument bucket_local_tokens (2048 tokens)"),
    ],
)
def test_asking_changes_nothing(seen, sentence):
    assert verdict("select.pure", GOLDEN, 2304, **seen) == sentence


MORE_ROWS = replace(GOLDEN, bucket_local_tokens=((2048, 520), (2304, 576), (2560, 640)))
FAR_BUCKET = replace(GOLDEN, capture_num_tokens=(2048, 2304, 2560, 2816, 8192))


@pytest.mark.parametrize(
    ("more", "base", "answer", "sentence"),
    [
        (MORE_ROWS, 2304, 2048, None),
        (MORE_ROWS, 2304, 2304, None),
        (MORE_ROWS, 2304, 2560, "more capacity: bucket 2304 becomes bucket 2560 (2048 tokens)"),
        (MORE_ROWS, 2304, None, "more capacity: bucket 2304 becomes eager (2048 tokens)"),
        (FAR_BUCKET, 2304, 2304, None),
        (FAR_BUCKET, 2304, None, "buckets that cannot matter: bucket 2304 becomes eager (2048 tokens)"),
        (FAR_BUCKET, None, 2304, "buckets that cannot matter: eager becomes bucket 2304 (2048 tokens)"),
        (FAR_BUCKET, BROKEN, 2304, "selector raised KeyError: 2048"),
    ],
)
def test_more_capacity_never_makes_the_choice_worse(more, base, answer, sentence):
    seen = SelectPairSeen(base=SelectSeen(answer=base, again=base), more=SelectSeen(answer=answer, again=answer))
    pair = SelectPairCase(base=GOLDEN, more=more)
    assert REGISTRY["select.monotone"].parts[0].check(pair, seen, PLAIN) == sentence


class RoundsDown(Toy):
    def select_replay_bucket(self, *, capture_num_tokens, num_tokens, **asked):
        return max((bucket for bucket in capture_num_tokens if bucket < num_tokens), default=None)


class LooksAtTokensAlone(Toy):
    def select_replay_bucket(self, *, capture_num_tokens, num_tokens, **asked):
        return next((bucket for bucket in capture_num_tokens if bucket >= num_tokens), None)


class TakesUnknownRows(Toy):
    def allowed(self, bucket, *, bucket_local_tokens, **asked):
        return bucket not in bucket_local_tokens


class BreaksTheTie(Toy):
    def select_replay_bucket(self, **asked):
        return max(bucket for bucket in asked["capture_num_tokens"] if self.allowed(bucket, **asked))


class ForbidsExactlyTwice(Toy):
    def allowed(self, bucket, *, num_tokens, **asked):
        return super().allowed(bucket, num_tokens=num_tokens, **asked) and bucket != 2 * num_tokens


class PopsTheLadder(Toy):
    def select_replay_bucket(self, *, capture_num_tokens, **asked):
        while capture_num_tokens:
            bucket = capture_num_tokens.pop(0)
            if bucket >= asked["num_tokens"] and self.allowed(bucket, **asked):
                return bucket
        return None


class RemembersTheLast(Toy):
    last = None

    def select_replay_bucket(self, **asked):
        self.last, before = super().select_replay_bucket(**asked), self.last
        return before


class ChecksTheLargestOnly(Toy):
    def select_replay_bucket(self, **asked):
        largest = max(asked["capture_num_tokens"])
        return super().select_replay_bucket(**asked) if self.allowed(largest, **asked) else None


NO_EXTRA = replace(GOLDEN, capture_num_tokens=(2048, 2304, 2560))
REJECTED = [
    ("fits-tokens", RoundsDown, replace(GOLDEN, num_tokens=2049)),
    ("fits-rows", LooksAtTokensAlone, GOLDEN),
    ("captured", TakesUnknownRows, GOLDEN),
    ("padding-bound", LooksAtTokensAlone, OVER),
    ("minimal", BreaksTheTie, NO_EXTRA),
    ("complete", ForbidsExactlyTwice, TWICE),
    ("pure", PopsTheLadder, GOLDEN),
    ("pure", RemembersTheLast, GOLDEN),
    ("monotone", ChecksTheLargestOnly, SelectPairCase(base=NO_EXTRA, more=FAR_BUCKET)),
]


@pytest.mark.parametrize(("id", "wrong", "case"), REJECTED)
def test_a_selector_with_one_thing_wrong_is_rejected_and_the_correct_one_is_not(id, wrong, case):
    assert judged(wrong(), f"select.{id}", case)
    assert judged(Toy(), f"select.{id}", case) is None
