"""What the templates of unittests are filled with: for each kind of case the numbers of that case, as plain values."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from cpbcg_ref import cases
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.oracles import buckets, passes, tokens

NAMES = {"prefillable": "local_prefillable"}  # what the engine calls a field of a report


@dataclass(frozen=True)
class Call:
    """A call with named arguments, as source text."""

    name: str
    given: dict[str, Any]


def call(value: Any) -> Call:
    """What makes this dataclass. Only what differs from the defaults, which are the same in the test."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    return Call(
        type(value).__name__, {one.name: given[one.name] for one in fields(value) if given[one.name] != one.default}
    )


def of_passes(case: cases.PassesCase) -> dict[str, Any]:
    return {"config": case.config, "ranks": len(case.passes[0]), "passes": [reports(one) for one in case.passes]}


def of_last_pass(case: cases.LastPassCase) -> dict[str, Any]:
    last = [reports(one) for one in (case.last, case.other_last)]
    history = [reports(one) for one in case.history]
    return {"config": case.config, "ranks": len(case.last), "history": history, "last": last}


def reports(one: cases.Pass) -> list[Call]:
    return [report(each) for each in one]


def report(one: cases.RankReport) -> Call:
    return Call("_Report", {NAMES.get(name, name): value for name, value in call(one).given.items()})


def of_server(server: cases.Server) -> dict[str, Any]:
    alignment = Contract().alignment[server.strategy] * server.cp_size
    return {"server": server, "ladder": list(server.capture_num_tokens), "alignment": alignment}


def of_replay(case: cases.ReplayCase) -> dict[str, Any]:
    return of_server(case.server) | {"batches": [of_batch(batch, case.server) for batch in case.batches]}


def of_batch(batch: cases.Batch, server: cases.Server) -> dict[str, Any]:
    """`rows`: those that each rank owns; `required`: of the largest one, padded; `sharded`: is CP active."""
    given = {"lengths": list(batch.lengths), "prefixes": list(batch.prefixes), "lengths_known": batch.lengths_known}
    rows = tokens.live_rows(batch.lengths, server.cp_size, server.strategy)
    required = Contract().aligned(max(rows), cp_size=server.cp_size, strategy=server.strategy)
    sharded = tokens.shardable(batch.lengths, server.cp_size, server.strategy)
    return given | {"rows": list(rows), "required": required, "sharded": sharded}


def of_capture(case: cases.CaptureCase) -> dict[str, Any]:
    return of_server(case.server)


def of_select(case: cases.SelectCase) -> dict[str, Any]:
    ladder, rows = list(case.capture_num_tokens), dict(case.bucket_local_tokens)
    return {"ladder": ladder, "rows": rows, "factor": case.max_padding_factor}


def of_select_pair(case: cases.SelectPairCase) -> dict[str, Any]:
    """`matters`: can a bucket that differs between the two run the batch."""
    both = [dataclasses.replace(one, min_replay_bucket=0) for one in (case.base, case.more)]  # no release has a floor
    before, after = ({b: dict(one.bucket_local_tokens).get(b) for b in one.capture_num_tokens} for one in both)
    changed = {bucket for bucket, _ in before.items() ^ after.items()}
    matters = any(bucket in changed for one in both for bucket in buckets.fitting(one))
    base, more = ([one.num_tokens, one.required_local_tokens, *list(of_select(one).values())[:2]] for one in both)
    return {"base": base, "more": more, "matters": matters, "factor": case.base.max_padding_factor}


def of_layout(case: cases.LayoutCase) -> dict[str, Any]:
    """`places`: of every token its request and its position in its sequence; `bounds`: see layout.balance."""
    batch, n = case.batch, case.cp_size
    places = [list(place) for place in tokens.places(batch.lengths, batch.prefixes)]
    pairs = zip(batch.lengths, batch.prefixes, strict=True)
    bounds = [(3 * n - 2) * (one // (2 * n)) + 2 * n + prefix if one % (2 * n) else 0 for one, prefix in pairs]
    given = {"places": places, "bounds": bounds, "spare": case.spare_rows}
    return of_lengths(case, batch.lengths, batch.prefixes) | given


def of_bad_layout(case: cases.BadLayoutCase) -> dict[str, Any]:
    negative = min(case.lengths, default=0) < 0
    return of_lengths(case, case.lengths, (0,) * len(case.lengths)) | {"negative": negative}


def of_lengths(case: Any, lengths: tuple[int, ...], prefixes: tuple[int, ...]) -> dict[str, Any]:
    alignment = Contract().alignment[case.strategy] * case.cp_size
    group = {"cp_size": case.cp_size, "strategy": case.strategy, "alignment": alignment}
    return group | {"lengths": list(lengths), "prefixes": list(prefixes)}


def of_attempts(case: cases.AttemptsCase) -> dict[str, Any]:
    seen = [case.attempts[:number] for number in range(1, len(case.attempts) + 1)]
    due = [max(passes.recent_sizes(attempts), default=None) for attempts in seen]
    return {"passes": [[*vars(one).values(), size] for one, size in zip(case.attempts, due, strict=True)]}


FACTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "AttemptsCase": of_attempts,
    "BadLayoutCase": of_bad_layout,
    "CaptureCase": of_capture,
    "LastPassCase": of_last_pass,
    "LayoutCase": of_layout,
    "PassesCase": of_passes,
    "ReplayCase": of_replay,
    "SelectCase": of_select,
    "SelectPairCase": of_select_pair,
}
