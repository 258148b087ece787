"""Steps of decodes and prefills on the ranks of a group, around the sizes of what was captured."""

from collections.abc import Sequence

from cpbcg_ref.cases import DispatchCase, Step
from cpbcg_ref.engines.contract import Contract, Dispatcher
from cpbcg_ref.oracles.graphs import tokens
from cpbcg_ref.strategies.choices import Pick, read_off

RANKS = (1, 2, 2, 4, 3)
STEP_BYTES = 8


def dispatch_case(pick: Pick, contract: Contract) -> DispatchCase:
    """One step on one to four ranks. Where a caller can rule modes out, one case in two is a rank that does.

    In one case in two the last rank has a prefill of about as many tokens as the first one has.
    """
    setup = pick([name for name, how in contract.dispatchers.items() for _ in how.modes * len(how.modes)])
    how = contract.dispatchers[setup]
    each, chooses = pick(how.tokens_per_decode), how.choosable and pick((False, True))
    ranks = 1 if chooses else pick(RANKS)
    ladder, most = (even if how.even else sizes)(pick.part(10), how, each)
    steps = [step(pick.part(STEP_BYTES), ladder, most, each) for _ in range(ranks)]
    if ranks > 1 and pick((False, True)):
        steps[-1] = Step(prefills=(max(1, tokens(steps[0], each) + pick((0, 1, -1))),))
    return DispatchCase(
        setup=setup,
        capture_num_tokens=ladder,
        max_requests=most,
        ranks=tuple(steps),
        tokens_per_decode=each,
        allowed=pick(((), how.modes)) if chooses else (),
        excluded=pick([*((mode,) for mode in how.modes), ()]) if chooses else (),
    )


def sizes(pick: Pick, how: Dispatcher, each: int) -> tuple[tuple[int, ...], int]:
    """A ladder of one to four buckets, and the most requests: fewer than the largest bucket has decodes, or more."""
    unit = each if how.multiples else 1
    ladder = [unit * pick((1, 2, 4, 1, 8))]
    for _ in range(pick((0, 1, 2, 3, 2))):
        ladder.append(ladder[-1] + unit * pick((1, 2, 6, 3, 4, 8, 5)))
    decodes = max(1, ladder[-1] // each)
    return tuple(ladder), pick((decodes, 2, decodes + 1, 1, max(1, decodes - 1), ladder[-1] + 3, 4))


def even(pick: Pick, how: Dispatcher, each: int) -> tuple[tuple[int, ...], int]:
    """For an engine that makes its own ladder: as many buckets as it is asked for, up to the most requests."""
    most, buckets = pick((2, 16, 24, 16, 64, 32, 16, 24, 3, 17, 48, 8, 1)), pick((1, 2, 3, 4, 2, 3))
    spread = range(max(1, most // buckets), most, max(1, most // buckets))
    return (*spread[: buckets - 1], most), most


def step(pick: Pick, ladder: Sequence[int], most: int, each: int) -> Step:
    """Decodes alone, prefills alone or both; mostly as many tokens as a bucket has, or one more or less."""
    kind, bucket = pick(("decodes", "mixed", "decodes", "prefills")), pick((ladder[0], *ladder))
    total = max(1, bucket + pick((0, 0, 1, -1, -each, each)))
    if kind == "decodes":
        return Step(decodes=min(most, max(1, pick((1, total // each, -(-total // each), total // each - 1, most)))))
    prefills = min(most, pick((1, 1, 2, 3)))
    room = most - prefills
    decodes = min(room, pick((1, 1, 2, max(0, total // each - prefills), room))) if kind == "mixed" else 0
    rest = max(prefills, total - decodes * each)
    first = pick((rest - prefills + 1, rest // prefills, 1))
    return Step(decodes=decodes, prefills=tuple(cut(rest, prefills, first)))


def cut(total: int, pieces: int, first: int) -> list[int]:
    """The first piece at least so long, the others one token each but for the last, which takes the rest."""
    lengths = [first, *(1 for _ in range(pieces - 1))]
    lengths[-1] += max(0, total - sum(lengths))
    return lengths


dispatch_cases = read_off(20 + 4 * STEP_BYTES, dispatch_case)
