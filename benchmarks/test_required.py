"""required_local_tokens, and the same of many batches at once, against the release's own function on Python lists."""

from random import Random

import pytest

from cpbcg_ref import required_local_tokens

np = pytest.importorskip("numpy")
batched = pytest.importorskip("cpbcg_ref.batched")
LEAST = {4: 3, 16: 6, 64: 11, 256: 14}
AT_ONCE = 1024  # batches of one call


def drawn(requests, cp_size, *, count):
    draw = Random(0)
    return [[draw.randrange(2 * cp_size, 4096) for _ in range(requests)] for _ in range(count)]


def compared(faster, theirs, requests, *, least, name, cp_size, strategy="zigzag"):
    """Each side is called as its callers call it."""
    batches = drawn(requests, cp_size, count=max(4, 2000 // requests))

    def ours():
        return [required_local_tokens(batch, cp_size=cp_size, strategy=strategy) for batch in batches]

    def ours_zigzag():
        return [required_local_tokens(batch, cp_size=cp_size) for batch in batches]

    def release():
        return [theirs(batch) for batch in batches]

    assert ours() == release()
    faster(name, ours=ours_zigzag if strategy == "zigzag" else ours, theirs=release, least=least, unit=len(batches))


@pytest.mark.parametrize("cp_size", [4, 8, 16])
@pytest.mark.parametrize("requests", LEAST)
def test_the_rows_of_a_batch(faster, their_rows, requests, cp_size):
    name = f"`required_local_tokens`, {requests} requests, cp {cp_size}, over SGLang"
    compared(faster, their_rows(cp_size), requests, cp_size=cp_size, least=LEAST[requests], name=name)


@pytest.mark.parametrize(
    ("cp_size", "requests", "strategy"),
    [
        *[(2, 1, "zigzag"), (4, 1, "zigzag"), (16, 1, "zigzag"), (2, 256, "zigzag")],
        *[(8, 1, "interleave"), (8, 256, "interleave"), (64, 1, "zigzag"), (64, 1, "interleave")],
    ],
)
def test_the_rows_of_a_batch_never_take_longer(faster, their_rows, cp_size, requests, strategy):
    many = "1 request" if requests == 1 else f"{requests} requests"
    name = f"`required_local_tokens`, {many}, cp {cp_size}, {strategy}, over SGLang"
    compared(faster, their_rows(cp_size, strategy), requests, cp_size=cp_size, strategy=strategy, least=1, name=name)


@pytest.mark.parametrize("cp_size", [4, 8])
@pytest.mark.parametrize(("requests", "least"), [(4, 25), (16, 25), (256, 100), (1024, 100)])
def test_the_rows_of_many_batches_at_once(faster, their_rows, requests, least, cp_size):
    batches, theirs = drawn(requests, cp_size, count=AT_ONCE), their_rows(cp_size)
    lengths, offsets = np.array(batches).ravel(), np.arange(AT_ONCE + 1) * requests
    some = batches[: max(4, 1000 // requests)]

    def ours():
        return batched.required_local_tokens(lengths, offsets, cp_size=cp_size)

    assert ours()[: len(some)].tolist() == list(map(theirs, some))
    name = f"`batched.required_local_tokens`, {AT_ONCE} batches of {requests} requests, cp {cp_size}, over SGLang"
    scale = AT_ONCE / len(some)
    faster(name, ours=ours, theirs=lambda: list(map(theirs, some)), least=least, scale=scale, unit=AT_ONCE)
