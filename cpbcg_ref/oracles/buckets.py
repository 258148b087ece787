"""Which captured bucket may run a batch, and which bucket can be captured at all: every candidate is looked at."""

from cpbcg_ref.cases import SelectCase


def refusal(case: SelectCase, bucket: int) -> str:
    """Why this bucket cannot run the batch, "" if it can."""
    rows, need = dict(case.bucket_local_tokens).get(bucket), case.required_local_tokens
    most = case.max_padding_factor * case.num_tokens
    if bucket < case.num_tokens:
        return f"too few tokens: {case.num_tokens} needed"
    if bucket not in case.capture_num_tokens or rows is None:
        return "not captured, or rows unknown"
    if rows < need:
        return f"too few rows: {rows} captured, {need} needed"
    if bucket > most and bucket > case.min_replay_bucket:
        return f"over {case.max_padding_factor}x: at most {most} tokens allowed"
    return ""


def fitting(case: SelectCase) -> list[int]:
    """All captured buckets that can run the batch, smallest first: the first one is the right choice."""
    return [bucket for bucket in sorted(set(case.capture_num_tokens)) if not refusal(case, bucket)]


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
