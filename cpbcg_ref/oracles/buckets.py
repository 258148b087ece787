"""Which captured bucket may run a batch, and which bucket can be captured at all: every candidate is looked at."""

from cpbcg_ref.cases import SelectCase


def refusals(case: SelectCase, bucket: int) -> list[str]:
    """Why this bucket cannot run the batch: one reason per rule that it breaks, none if it can."""
    rows = next((rows for captured, rows in case.bucket_local_tokens if captured == bucket), None)
    most = max(case.max_padding_factor * case.num_tokens, case.min_replay_bucket)
    reasons = []
    if bucket < case.num_tokens:
        reasons.append(f"too few tokens: {case.num_tokens} needed")
    if rows is None or bucket not in case.capture_num_tokens:
        reasons.append("not captured, or rows unknown")
    if rows is not None and rows < case.required_local_tokens:
        reasons.append(f"too few rows: {rows} captured, {case.required_local_tokens} needed")
    if bucket > most:
        reasons.append(f"over {case.max_padding_factor}x: at most {most} tokens allowed")
    return reasons


def fitting(case: SelectCase) -> list[int]:
    """All captured buckets that can run the batch, smallest first: the first one is the right choice."""
    return [bucket for bucket in sorted(set(case.capture_num_tokens)) if not refusals(case, bucket)]


def verdicts(case: SelectCase) -> dict[int, list[str]]:
    """What becomes of each bucket of the ladder: chosen, fitting but not the smallest, or why it is refused."""
    able = fitting(case)
    told = {bucket: [f"fits, {able[0]} is smaller"] for bucket in able} | {bucket: ["chosen"] for bucket in able[:1]}
    return {bucket: told.get(bucket) or refusals(case, bucket) for bucket in case.capture_num_tokens}


def has_legal_split(bucket: int, *, shortest: int, longest: int, step: int = 1) -> bool:
    """Do some k requests of `shortest` to `longest` tokens, each a multiple of `step`, sum to the bucket?

    Tries every k: the smallest k requests together at most the bucket, the longest k at least the bucket.

    >>> has_legal_split(16, shortest=8, longest=9), has_legal_split(9, shortest=8, longest=8)
    (True, False)
    """
    sizes = [size for size in range(max(shortest, 1), min(longest, bucket) + 1) if size % step == 0]
    if not sizes or bucket % step:
        return False
    return any(k * sizes[0] <= bucket <= k * sizes[-1] for k in range(1, bucket // sizes[0] + 1))
