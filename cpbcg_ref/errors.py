"""Everything a caller of cpbcg_ref can catch."""


class CpbcgError(Exception):
    """Base of all errors raised on purpose. Its text says what was wrong, the value, the rule, and what to do."""


class InvalidInput(CpbcgError, ValueError):
    """A value breaks a rule of the specification. Nothing is repaired.

    >>> from cpbcg_ref import required_local_tokens
    >>> required_local_tokens([9, -1], cp_size=4)
    Traceback (most recent call last):
    cpbcg_ref.errors.InvalidInput: lengths[1] is -1: a length is an integer >= 0 (tokens)
    """


class ReplayError(CpbcgError, RuntimeError):
    """A batch reached replay although no captured graph can run it. Admission and replay disagree: a bug above."""


class TargetError(CpbcgError):
    """A target cannot be obtained: unknown name, failing download, wrong checksum, missing folder or symbol."""
