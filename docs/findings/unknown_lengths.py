"""A batch whose extend lengths the caller did not pass.

usage: python unknown_lengths.py DIR      DIR: an unpacked sglang wheel, 0.5.17 to 0.5.23; needs torch
"""

from load import batch, load

for kind, symbol in (("zigzag", "ZigzagCPStrategy"), ("interleave", "InterleaveCPStrategy")):
    strategy = getattr(load(f"sglang.srt.layers.cp.{kind}"), symbol)(cp_size=2)
    try:
        print(f"{kind}: can_apply answers {strategy.can_apply(12, batch(12, None))}")
    except TypeError as error:
        print(f"{kind}: can_apply raises TypeError: {error}")
