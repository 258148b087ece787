"""Every batch of a few remainders at once, against what the machine can do: copy memory, add numbers in its cache."""

import time
from itertools import combinations_with_replacement

import pytest

np = pytest.importorskip("numpy")
batched = pytest.importorskip("cpbcg_ref.batched")
CP_SIZE, REQUESTS = 8, 4
NUMBER = 8  # bytes
now = time.process_time


def quickest(call, *, times=15):
    call()

    def once():
        began = now()
        call()
        return now() - began

    return min(once() for _ in range(times))


def every_remainder():
    """Lengths and offsets of all batches of REQUESTS requests, by their remainders: that covers all lengths."""
    blocks = 2 * CP_SIZE
    lengths = np.array(list(combinations_with_replacement(range(blocks), REQUESTS))) + blocks
    lengths = np.tile(lengths, (64, 1))  # as many layouts as a part of a sweep has
    return lengths.ravel(), np.arange(len(lengths) + 1) * REQUESTS


def test_layouts_per_second_of_a_sweep(figure, note):
    lengths, offsets = every_remainder()
    layouts = len(offsets) - 1
    rate = layouts / quickest(lambda: batched.required_local_tokens(lengths, offsets, cp_size=CP_SIZE))
    source, target = np.zeros(2**25, dtype=np.int64), np.zeros(2**25, dtype=np.int64)
    copied = 2 * source.nbytes / quickest(lambda: np.copyto(target, source), times=5)  # read and written
    small = np.ones(2**12, dtype=np.int64)
    added = len(small) * 100 / quickest(lambda: [np.add(small, 1, out=small) for _ in range(100)])
    moved = NUMBER * (REQUESTS + 2)  # lengths and an offset in, rows out
    name = f"sweep with `batched`, {layouts:,} layouts of {REQUESTS} requests, cp {CP_SIZE}"
    figure(name, f"{rate / 1e6:,.1f} million layouts/s per core")
    figure("copying memory, the roof of reading and writing", f"{copied / 1e9:,.1f} GB/s")
    figure("adding numbers in the cache, the roof of arithmetic", f"{added / 1e9:,.2f} billion/s")
    note(
        f"Limits of the sweep: a layout moves {moved} bytes in and out, so the memory would allow "
        f"{copied / moved / 1e6:,.0f} million layouts/s and the sweep takes {rate * moved / copied:.0%} of that. "
        f"It is bound by instructions: a layout costs as much as {added / rate:,.0f} additions in the cache, "
        f"for {REQUESTS} requests a division and a count each (both one number at a time, not vectors), and for "
        f"{CP_SIZE} ranks a few passes over the batches."
    )
    assert rate > 0


def test_layouts_per_second_of_the_command(figure):
    """`cpbcg sweep` asks the engine batch by batch, every rank, and compares rows, shares and buckets."""
    from cpbcg_ref.engines.reference import Reference
    from cpbcg_ref.sweeping.batches import sweep
    from cpbcg_ref.sweeping.scope import Batches

    part = Batches(kind="remainders", strategy="zigzag", cp_size=4, requests=4, length=15, begin=(0,))
    done = sweep(Reference(), part)
    assert not done["violations"]
    assert done["layouts"] > 400
    text = f"{done['layouts'] / done['seconds']:,.0f} layouts/s per core"
    figure("`cpbcg sweep` on the reference, 4 requests, cp 4, all ranks asked and judged", text)
