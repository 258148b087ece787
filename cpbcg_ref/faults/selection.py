"""Wrong selectors: each is one changed line of `select_replay_bucket`, unless it changes its arguments."""

from typing import Any

from cpbcg_ref.engines.reference import Reference
from cpbcg_ref.faults.model import edit, fault

MOST = "most = factor * num_tokens"
START = "i = bisect_left(buckets, num_tokens)"
WITHIN = "(buckets[i] <= most or buckets[i] <= floor)"
HOLDS = "if rows.get(buckets[i], -1) >= required:"
FOUND = f"{HOLDS}\n            return buckets[i]"
NONE = "i += 1\n    return None"
FITTING = f"{START}\n    i, buckets = 0, [b for b in buckets[i:] if b <= max(most, floor)]"

edit(
    "overflow",
    "the bucket is picked by the number of tokens alone",
    ("replay", HOLDS, "if buckets[i] in rows:"),
    must="capacity.no-overflow select.fits-rows replay.admitted-implies-runs",
    source="sglang#33906",
    smallest=18,
)
edit(
    "no-padding-bound",
    "the smallest bucket that holds the batch is taken, however much larger it is",
    ("replay", WITHIN, "True"),
    must="select.padding-bound",
    source="sglang#31487",
    smallest=1,
)
edit(
    "tiny-floor",
    "the opt-in floor is compared with the tokens of the batch, so that a tiny batch gets a bucket of any size",
    ("replay", MOST, "most = 2**30 if num_tokens <= floor else factor * num_tokens"),
    must="select.padding-bound",
    source="sglang#40253",
    smallest=1,
)
edit(
    "floor-ignored",
    "the opt-in floor is accepted and not used",
    ("replay", WITHIN, "buckets[i] <= most"),
    must="select.complete select.without-cp",
    source="sglang#40253",
    smallest=1,
)
edit(
    "floor-lowers-the-bound",
    "the bound is the smaller of the padding rule and the floor: min for max",
    ("replay", WITHIN, WITHIN.replace(" or ", " and ")),
    must="select.complete select.without-cp",
    smallest=1,
)
edit(
    "bound-strict",
    "a bucket of exactly twice the tokens is refused: < for <=",
    ("replay", WITHIN, WITHIN.replace("<= most", "< most")),
    must="select.complete",
    smallest=1,
)
edit(
    "bound-rounded-down",
    "the padding factor is computed with //, so that 2T + 1 tokens are allowed",
    ("replay", WITHIN, WITHIN.replace("<= most", "// factor <= num_tokens")),
    must="select.padding-bound",
    smallest=1,
)
edit(
    "bound-by-rows",
    "the padding factor is applied to the local rows instead of the tokens",
    ("replay", MOST, MOST.replace("num_tokens", "required")),
    must="select.complete",
    smallest=1,
)
edit(
    "tokens-strict",
    "a full bucket is refused: < for <=",
    ("replay", START, START.replace("num_tokens", "num_tokens + 1")),
    must="select.complete select.without-cp",
    smallest=1,
)
edit(
    "rows-strict",
    "a bucket with exactly the required rows is refused: > for >=",
    ("replay", HOLDS, HOLDS.replace(">=", ">")),
    must="select.complete",
    smallest=1,
)
edit(
    "rows-off-by-one",
    "a bucket may lack one row",
    ("replay", HOLDS, HOLDS.replace("-1) >=", "-2) + 1 >=")),
    must="select.fits-rows",
    smallest=1,
)
edit(
    "tokens-ignored",
    "the bucket is picked by the rows alone",
    ("replay", START, "i = 0"),
    must="select.fits-tokens",
    smallest=1,
)
edit(
    "bucket-below",
    "the largest bucket up to the tokens is taken: floor for ceil",
    ("replay", START, "i, buckets = 0, [b for b in buckets[::-1] if b <= num_tokens]"),
    must="select.fits-tokens",
    smallest=1,
)
edit(
    "clamped-to-largest",
    "where no bucket fits, the largest one is taken",
    ("replay", NONE, "i += 1\n    return buckets[-1]"),
    must="select.fits-rows",
    smallest=1,
)
edit(
    "no-bucket-raises",
    "where no bucket fits, the selector raises instead of answering eager",
    ("replay", NONE, "i += 1\n    raise LookupError(num_tokens)"),
    must="select.complete replay.admitted-implies-runs",
    smallest=1,
)
edit(
    "largest-for-smallest",
    "the largest bucket that fits is taken",
    ("replay", START, f"{FITTING}[::-1]"),
    must="select.minimal select.monotone",
    smallest=2,
)
edit(
    "first-for-smallest",
    "the first bucket that fits is taken from a set, whose order is arbitrary",
    ("replay", START, f"{FITTING}\n    buckets = list(set(buckets))"),
    must="select.minimal",
    smallest=2,
)
edit(
    "tightest-rows",
    "the bucket with the fewest rows to spare is taken instead of the smallest",
    ("replay", START, f"{FITTING}\n    buckets.sort(key=lambda bucket: rows.get(bucket, 0))"),
    must="select.minimal",
    smallest=2,
)
edit(
    "first-candidate-alone",
    "only the first bucket with enough tokens is tried: where its rows do not fit, the next one is not",
    ("replay", FOUND, f"return buckets[i] {HOLDS[:-1]} else None"),
    must="select.complete",
    source="vllm#53407",
    smallest=2,
)
edit(
    "no-bound-without-cp",
    "with CP off the padding bound is not applied",
    ("replay", "(table.max_padding_factor", "(2 if table.cp_size > 1 else 2**30"),
    must="select.without-cp",
    smallest=2,
)
edit(
    "align-without-cp",
    "rows are rounded up to two even with CP off",
    ("replay", "layout, table.alignment)", "layout, table.alignment or (2 if table.cp_size == 1 else None))"),
    must="select.without-cp",
    source="sglang#26911",
    smallest=2,
)


@fault("argument-mutated", must="select.pure", smallest=1, source="vllm:CudagraphDispatcher")
class ArgumentMutated(Reference):
    """A bucket whose rows are unknown is written into the caller's table."""

    def select_replay_bucket(self, **question: Any) -> int | None:
        for bucket in question["capture_num_tokens"]:
            question["bucket_local_tokens"].setdefault(bucket, 0)
        return super().select_replay_bucket(**question)


@fault("argument-sorted", must="select.pure", smallest=2)
class ArgumentSorted(Reference):
    """The caller's ladder is turned round in place."""

    def select_replay_bucket(self, **question: Any) -> int | None:
        answer = super().select_replay_bucket(**question)
        question["capture_num_tokens"].reverse()
        return answer


@fault("same-bucket-never-twice", must="select.pure", smallest=1)
class SameBucketNeverTwice(Reference):
    """The answer depends on the call before: a bucket just given out is not given out again at once."""

    given: int | None = None

    def select_replay_bucket(self, **question: Any) -> int | None:
        answer = super().select_replay_bucket(**question)
        self.given = None if answer == self.given else answer
        return self.given
