"""Checkers of batches on a server and of capture, on answers worked out by hand and on servers that are wrong."""

from dataclasses import replace

import pytest
from toys import Toy, ToyServer, judged

from cpbcg_ref.answers import BatchSeen, Captured, CaptureSeen, Loaded, Raised, ReplaySeen
from cpbcg_ref.cases import Batch, CaptureCase, ReplayCase, Server
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.invariants.pictures import picture

PLAIN = Contract()
SERVER = Server(cp_size=4, capture_num_tokens=(2048, 2304, 2560), context_length=4096)
CAPTURED = Captured(
    requests=((2048, (2048,)), (2304, (2304,)), (2560, (2560,))),
    bucket_local_tokens=((2048, 512), (2304, 576), (2560, 640)),
    capture_num_tokens=(2048, 2304, 2560),
)
RAN = Loaded(bucket=2304, captured_rows=576, live_rows=520)
RIGHT = BatchSeen(active=(True,) * 4, admitted=(True,) * 4, bucket=(2304,) * 4, loaded=(RAN,) * 4)
EAGER = BatchSeen(active=(True,) * 4, admitted=(False,) * 4, bucket=(None,) * 4, loaded=(None,) * 4)
INACTIVE = replace(EAGER, active=(False,) * 4)
CRASH = Raised("RuntimeError", "too few rows", "bcg.py:2")
CRASHED = replace(RIGHT, bucket=(2048,) * 4, loaded=(CRASH,) * 4)
OF_BATCHES = [
    (id, part) for id, one in REGISTRY.items() for part in range(len(one.parts)) if one.parts[part].family == "replay"
]


def batch(*lengths, known=True):
    return Batch(lengths=lengths, prefixes=(0,) * len(lengths), lengths_known=known)


FULL, SHORT, UNKNOWN = batch(1534, 161, 353), batch(2000, 3), batch(2048, known=False)


def verdict(id, one, seen, server=SERVER, captured=CAPTURED, contract=PLAIN, part=0):
    case = ReplayCase(server=server, batches=(one,))
    answers = ReplaySeen(captured=(captured,) * server.cp_size, batches=(seen,))
    return REGISTRY[id].parts[part].check(case, answers, contract)


@pytest.mark.parametrize(("id", "part"), OF_BATCHES)
@pytest.mark.parametrize(
    ("one", "seen"),
    [
        (FULL, RIGHT),
        (SHORT, INACTIVE),
        (UNKNOWN, EAGER),
        (batch(), INACTIVE),
        (batch(1000), EAGER),
        (batch(4000), EAGER),
    ],
)
def test_a_right_server_is_accepted(id, part, one, seen):
    assert verdict(id, one, seen, part=part) is None


def on_rank(rank, answers, answer):
    return (*answers[:rank], answer, *answers[rank + 1 :])


LARGER = replace(RIGHT, bucket=(2560,) * 4, loaded=(replace(RAN, bucket=2560, captured_rows=640),) * 4)
FED = replace(RAN, live_rows=512)
DIFFERS = replace(RIGHT, bucket=(2304, 2304, 2560, 2304))
UNLIKE = replace(RIGHT, bucket=DIFFERS.bucket, loaded=on_rank(2, (RAN,) * 4, replace(RAN, bucket=2560)))
ONE_EAGER = replace(RIGHT, admitted=(True, True, True, False), loaded=(RAN, RAN, RAN, None))
NEED = "2048 tokens, 520 rows"
ONE_STOPS = replace(RIGHT, loaded=(RAN, CRASH, RAN, RAN))
WRONG = [
    ("capacity.no-overflow", 0, FULL, CRASHED, "rank 0 needs 520 rows, bucket 2048 captured 512"),
    (
        "capacity.no-overflow",
        0,
        FULL,
        replace(RIGHT, loaded=(FED,) * 4),
        "rank 0 has 513 live rows, 512 were fed to the graph",
    ),
    ("select.minimal", 1, FULL, LARGER, f"rank 0: bucket 2560 for {NEED}: 2304 is enough"),
    ("select.complete", 1, FULL, EAGER, f"rank 0: eager for {NEED}: bucket 2304 fits"),
    ("select.complete", 1, FULL, ONE_EAGER, f"rank 3: eager for {NEED}: bucket 2304 fits"),
    ("select.without-cp", 0, SHORT, RIGHT, "CP is not active, rank 0 admits bucket 2304"),
    ("agree.bucket", 0, FULL, UNLIKE, "rank 0 selects bucket 2304, rank 2 selects bucket 2560"),
    (
        "agree.bucket",
        0,
        FULL,
        replace(EAGER, bucket=(None, 2304, None, None)),
        "rank 0 selects eager, rank 1 selects bucket 2304",
    ),
    ("agree.mode", 0, FULL, ONE_EAGER, "rank 0 replays, rank 3 runs eager"),
    (
        "agree.mode",
        0,
        FULL,
        replace(EAGER, admitted=(False, CRASH, False, False)),
        "rank 0 runs eager, rank 1 raises RuntimeError",
    ),
    (
        "agree.collectives",
        0,
        FULL,
        ONE_EAGER,
        "rank 0 replays bucket 2304 of 576 rows, rank 3 gathers its shards",
    ),
    (
        "agree.collectives",
        0,
        FULL,
        ONE_STOPS,
        "rank 0 replays bucket 2304 of 576 rows, rank 1 stops with RuntimeError",
    ),
    (
        "agree.collectives",
        0,
        SHORT,
        replace(INACTIVE, active=(False, True, False, False)),
        "rank 0 gathers nothing, rank 1 gathers its shards",
    ),
    (
        "replay.admitted-implies-runs",
        0,
        FULL,
        CRASHED,
        "rank 0 admits bucket 2048, replay raised RuntimeError: too few rows",
    ),
    ("replay.admitted-implies-runs", 0, FULL, DIFFERS, "rank 2 admits bucket 2560, replays bucket 2304"),
    (
        "replay.admitted-implies-runs",
        0,
        FULL,
        replace(EAGER, admitted=(False, False, CRASH, False)),
        "rank 2 raised at admission: RuntimeError: too few rows",
    ),
    ("replay.safe-fallback", 0, SHORT, RIGHT, "CP not active, rank 0 admits bucket 2304"),
    ("replay.safe-fallback", 0, UNKNOWN, RIGHT, "lengths unknown, rank 0 admits bucket 2304"),
    (
        "replay.safe-fallback",
        0,
        UNKNOWN,
        replace(EAGER, admitted=(CRASH,) * 4),
        "lengths unknown: rank 0 raised RuntimeError: too few rows",
    ),
]


@pytest.mark.parametrize(("id", "part", "one", "seen", "sentence"), WRONG)
def test_one_wrong_answer_is_told_with_its_numbers(id, part, one, seen, sentence):
    found = verdict(id, one, seen, part=part)
    assert found == f"{sentence} (lengths {','.join(map(str, one.lengths))}, cp 4)"
    assert len(found) < 100


def test_the_overflow_is_told_on_one_line():
    assert verdict("capacity.no-overflow", FULL, CRASHED) == (
        "rank 0 needs 520 rows, bucket 2048 captured 512 (lengths 1534,161,353, cp 4)"
    )


@pytest.mark.parametrize("id", ["agree.bucket", "agree.mode", "agree.collectives"])
def test_refusing_alike_is_agreement(id):
    everywhere = replace(EAGER, active=(CRASH,) * 4, admitted=(CRASH,) * 4, bucket=(CRASH,) * 4)
    assert verdict(id, FULL, everywhere) is None


def test_a_bucket_of_unknown_rows_is_not_admitted():
    table = replace(CAPTURED, bucket_local_tokens=((2048, 512), (2560, 640)))
    assert verdict("replay.safe-fallback", FULL, RIGHT, captured=table) == (
        "rows of bucket 2304 unknown, rank 0 admits bucket 2304 (lengths 1534,161,353, cp 4)"
    )


def test_a_strategy_without_graphs_runs_eager():
    server = replace(SERVER, strategy="interleave")
    assert verdict("replay.safe-fallback", FULL, RIGHT, server) == (
        "no graphs for interleave, rank 0 admits bucket 2304 (lengths 1534,161,353, cp 4)"
    )
    assert verdict("replay.safe-fallback", FULL, EAGER, server) is None
    assert verdict("select.complete", FULL, EAGER, server, part=1) is None


ALONE = Server(cp_size=1, capture_num_tokens=(4, 16), context_length=64)
ALONE_CAPTURED = Captured(requests=((4, (4,)), (16, (16,))), bucket_local_tokens=(), capture_num_tokens=(4, 16))
LOADED = Loaded(bucket=16, captured_rows=None, live_rows=None)
REPLAYS = BatchSeen(active=(False,), admitted=(True,), bucket=(16,), loaded=(LOADED,))
RUNS_EAGER = BatchSeen(active=(False,), admitted=(False,), bucket=(None,), loaded=(None,))


@pytest.mark.parametrize(
    ("tokens", "floor", "seen", "sentence"),
    [
        (8, 0, REPLAYS, None),
        (7, 0, RUNS_EAGER, None),
        (5, 16, REPLAYS, None),
        (7, 0, REPLAYS, "without CP: bucket 16, the token rule gives eager (lengths 7, cp 1)"),
        (8, 0, RUNS_EAGER, "without CP: eager, the token rule gives bucket 16 (lengths 8, cp 1)"),
        (5, 16, RUNS_EAGER, "without CP: eager, the token rule gives bucket 16 (lengths 5, cp 1)"),
    ],
)
def test_without_cp_the_token_rule_decides_alone(tokens, floor, seen, sentence):
    server = replace(ALONE, min_replay_bucket=floor)
    contract = Contract(min_replay_bucket=True)
    found = verdict("select.without-cp", batch(tokens), seen, server, ALONE_CAPTURED, contract)
    assert found == sentence


def test_a_short_batch_of_unknown_lengths_is_told_as_unknown_alone():
    unknown = replace(SHORT, lengths_known=False)
    assert verdict("select.without-cp", unknown, RIGHT) is None
    assert "lengths unknown" in verdict("replay.safe-fallback", unknown, RIGHT)


def test_without_cp_nothing_is_said_about_unknown_lengths_or_about_rows():
    unknown = batch(7, known=False)
    assert verdict("select.without-cp", unknown, REPLAYS, ALONE, ALONE_CAPTURED) is None
    smaller = replace(REPLAYS, bucket=(16,))
    assert verdict("select.minimal", batch(4), smaller, ALONE, ALONE_CAPTURED, part=1) is None
    assert verdict("capacity.no-overflow", batch(16), REPLAYS, ALONE, ALONE_CAPTURED) is None
    assert verdict("replay.safe-fallback", batch(16), REPLAYS, ALONE, ALONE_CAPTURED) is None


@pytest.mark.parametrize(("one", "due"), [(FULL, True), (SHORT, False), (UNKNOWN, False)])
def test_admission_that_raises_where_eager_was_due_belongs_to_safe_fallback(one, due):
    everywhere = replace(EAGER, admitted=(CRASH,) * 4)
    assert bool(verdict("replay.admitted-implies-runs", one, everywhere)) == due
    assert bool(verdict("replay.safe-fallback", one, everywhere)) == (not due)
    alone = replace(RUNS_EAGER, admitted=(CRASH,))
    assert verdict("replay.admitted-implies-runs", one, alone, ALONE, ALONE_CAPTURED)


@pytest.mark.parametrize("one", [SHORT, UNKNOWN])
def test_rows_of_a_batch_that_must_run_eager_are_not_counted(one):
    few = replace(LARGER, loaded=(replace(RAN, bucket=2560, live_rows=100),) * 4)
    assert verdict("capacity.no-overflow", one, few) is None
    assert verdict("select.minimal", one, few, part=1) is None


def test_a_batch_that_runs_eager_has_no_bucket_that_could_be_smaller():
    assert verdict("select.minimal", FULL, EAGER, part=1) is None


def test_a_replay_that_raises_after_the_selector_said_eager_is_no_choice_of_eager():
    undecided = replace(RIGHT, bucket=(None,) * 4, loaded=(CRASH,) * 4)
    assert verdict("select.complete", FULL, undecided, part=1) is None
    assert verdict("replay.admitted-implies-runs", FULL, undecided)


def test_a_batch_that_is_not_admitted_cannot_overflow():
    assert verdict("capacity.no-overflow", FULL, replace(CRASHED, admitted=(False,) * 4)) is None


def test_exactly_as_many_rows_as_captured_are_no_overflow():
    full = replace(RIGHT, bucket=(2048,) * 4, loaded=(Loaded(bucket=2048, captured_rows=512, live_rows=512),) * 4)
    assert verdict("capacity.no-overflow", batch(2048), full) is None


def rank_table(requests, rows):
    return Captured(
        requests=tuple(requests.items()), bucket_local_tokens=tuple(rows.items()), capture_num_tokens=tuple(requests)
    )


LADDER = CaptureCase(server=Server(cp_size=4, capture_num_tokens=(9, 16, 128), context_length=64))
GOOD = rank_table({9: (9,), 16: (16,), 128: (64, 64)}, {9: 8, 16: 8, 128: 32})
IMPOSSIBLE = CaptureCase(server=Server(cp_size=4, capture_num_tokens=(9,), context_length=8))
DROPPED = rank_table({16: (16,), 128: (64, 64)}, {16: 8, 128: 32})
NO_BUCKET = Raised("ValueError", "no bucket is left", "bcg.py:5")
SHORTEST = CaptureCase(server=Server(cp_size=4, capture_num_tokens=(7, 8, 9), context_length=64))
ROBIN = CaptureCase(server=Server(cp_size=4, capture_num_tokens=(3, 4), context_length=64, strategy="interleave"))
ONE_RANK = CaptureCase(server=Server(cp_size=1, capture_num_tokens=(1, 2), context_length=64))
SETUP = "(ladder 9,16,128, context 64, cp 4)"


@pytest.mark.parametrize(
    ("case", "ranks", "sentence"),
    [
        (LADDER, (GOOD,) * 4, None),
        (IMPOSSIBLE, (NO_BUCKET,) * 4, None),
        (LADDER, (DROPPED,) * 4, f"rank 0 dropped bucket 9, which has a legal split {SETUP}"),
        (
            LADDER,
            (NO_BUCKET,) * 4,
            f"rank 0 raised ValueError: no bucket is left, bucket 9 is legal {SETUP}",
        ),
        (
            LADDER,
            (GOOD, GOOD, DROPPED, GOOD),
            f"rank 2 dropped bucket 9, which has a legal split {SETUP}",
        ),
        (
            LADDER,
            (rank_table({9: (9,), 16: (16,), 128: (128,)}, {9: 8, 16: 8, 128: 32}),) * 4,
            f"rank 0 captured bucket 128 as 128: over the context of 64 {SETUP}",
        ),
        (
            LADDER,
            (rank_table({9: (9,), 16: (16,), 128: (63, 65)}, {9: 8, 16: 8, 128: 33}),) * 4,
            f"rank 0 captured bucket 128 as 63,65: over the context of 64 {SETUP}",
        ),
        (
            SHORTEST,
            (rank_table({9: (9,)}, {9: 8}),) * 4,
            "rank 0 dropped bucket 8, which has a legal split (ladder 7,8,9, context 64, cp 4)",
        ),
        (SHORTEST, (rank_table({8: (8,), 9: (9,)}, {8: 8, 9: 8}),) * 4, None),
        (
            SHORTEST,
            (rank_table({7: (7,), 8: (8,), 9: (9,)}, {7: 8, 8: 8, 9: 8}),) * 4,
            "rank 0 captured bucket 7 as 7: cannot be sharded (ladder 7,8,9, context 64, cp 4)",
        ),
        (
            ONE_RANK,
            (NO_BUCKET,),
            "rank 0 raised ValueError: no bucket is left, bucket 1 is legal (ladder 1,2, context 64, cp 1)",
        ),
        (ONE_RANK, (rank_table({2: (2,)}, {}),), None),
        (ROBIN, (rank_table({4: (4,)}, {4: 4}),) * 4, None),
        (
            LADDER,
            (replace(GOOD, bucket_local_tokens=((9, 2), (16, 8), (128, 32))),) * 4,
            f"rank 0 captured bucket 9 as 9: 2 rows recorded, not 8 {SETUP}",
        ),
        (
            LADDER,
            (rank_table({9: (9,), 16: (13, 3), 128: (64, 64)}, {9: 8, 16: 8, 128: 32}),) * 4,
            f"rank 0 captured bucket 16 as 13,3: cannot be sharded {SETUP}",
        ),
        (
            LADDER,
            (rank_table({9: (8,), 16: (16,), 128: (64, 64)}, {9: 8, 16: 8, 128: 32}),) * 4,
            f"rank 0 captured bucket 9 as 8: 8 tokens {SETUP}",
        ),
        (
            LADDER,
            (replace(GOOD, capture_num_tokens=(16, 128)),) * 4,
            f"rank 0 may select [16, 128], captured [9, 16, 128] {SETUP}",
        ),
        (
            LADDER,
            (GOOD, replace(GOOD, bucket_local_tokens=((9, 8), (16, 8), (128, 40))), GOOD, GOOD),
            f"rank 1 captured bucket 128 as 64,64: 40 rows recorded, not 32 {SETUP}",
        ),
        (
            LADDER,
            (GOOD, rank_table({9: (9,), 16: (8, 8), 128: (64, 64)}, {9: 8, 16: 8, 128: 32}), GOOD, GOOD),
            f"rank 1 captured other buckets, requests or rows than rank 0 {SETUP}",
        ),
        (
            LADDER,
            (replace(GOOD, bucket_local_tokens=((9, 8), (16, 3), (128, 32))),) * 4,
            f"rank 0 captured bucket 16 as 16: 3 rows recorded, not 8 {SETUP}",
        ),
        (
            LADDER,
            (replace(GOOD, bucket_local_tokens=((9, 8), (128, 32))),) * 4,
            f"rank 0 captured bucket 16 as 16: no rows recorded, not 8 {SETUP}",
        ),
        (
            IMPOSSIBLE,
            (rank_table({}, {}),) * 4,
            "rank 0 captured no bucket and did not say so (ladder 9, context 8, cp 4)",
        ),
        (
            IMPOSSIBLE,
            (rank_table({9: (8, 1)}, {9: 8}),) * 4,
            "rank 0 captured bucket 9 as 8,1: cannot be sharded (ladder 9, context 8, cp 4)",
        ),
    ],
)
def test_what_is_captured_is_legal_complete_and_selectable(case, ranks, sentence):
    contract = Contract(graph_strategies=("zigzag", "interleave"))
    assert REGISTRY["capture.legal"].parts[0].check(case, CaptureSeen(ranks=ranks), contract) == sentence


@pytest.mark.parametrize(
    ("ladder", "asked", "captured", "sentence"),
    [
        (1, (9, 16), {12: (12,), 16: (16,)}, None),
        (1, (7, 8, 9), {8: (8,), 12: (12,)}, None),
        (2, (9, 17), {16: (16,), 24: (24,)}, None),
        (1, (9, 16), {9: (9,), 16: (16,)}, "captured bucket 9 as 9: nobody asked for it"),
        (0, (9, 16), {12: (12,), 16: (16,)}, "captured bucket 12 as 12: nobody asked for it"),
        (1, (7, 9), {12: (12,)}, "dropped bucket 8, which has a legal split"),
        (0, (7, 9), {9: (9,)}, None),
    ],
)
def test_buckets_are_judged_as_the_engine_declares_to_round_them(ladder, asked, captured, sentence):
    case = CaptureCase(server=Server(cp_size=4, capture_num_tokens=asked, context_length=64))
    seen = CaptureSeen(ranks=(rank_table(captured, dict.fromkeys(captured, 8)),) * 4)
    found = REGISTRY["capture.legal"].parts[0].check(case, seen, Contract(ladder=ladder))
    setup = f"(ladder {','.join(map(str, asked))}, context 64, cp 4)"
    assert found == (sentence and f"rank 0 {sentence} {setup}")


def test_nothing_has_to_be_captured_for_a_strategy_without_graphs():
    seen = CaptureSeen(ranks=(rank_table({}, {}),) * 4)
    assert REGISTRY["capture.legal"].parts[0].check(ROBIN, seen, PLAIN) is None


class WrongServer(Toy):
    """A toy whose server is `Server`, a class inside."""

    class Server(ToyServer):
        pass

    def start(self, server):
        return self.Server(self, server)


class LooksAtTokensAlone(WrongServer):
    class Server(ToyServer):
        def select(self, batch, cp_rank):
            bucket = next((bucket for bucket in self.requests if bucket >= batch.num_tokens), None)
            return bucket if self.is_cp_active(batch, cp_rank) else None


class SkipsABucket(WrongServer):
    class Server(ToyServer):
        def select(self, batch, cp_rank):
            bucket = super().select(batch, cp_rank)
            return bucket and max(self.requests)


class NeverReplays(WrongServer):
    class Server(ToyServer):
        def can_run_graph(self, batch, cp_rank):
            return False


class AdmitsInactive(WrongServer):
    class Server(ToyServer):
        def is_cp_active(self, batch, cp_rank):
            return bool(batch.lengths)


class SelectsByOwnTokens(WrongServer):
    class Server(ToyServer):
        def table(self, cp_rank):
            return {bucket: rows - 4 * cp_rank for bucket, rows in super().table(cp_rank).items()}


class AdmitsWithAnotherSelector(WrongServer):
    class Server(ToyServer):
        def load_batch(self, batch, cp_rank):
            return replace(super().load_batch(batch, cp_rank), bucket=max(self.requests))


class CapturesOneLongRequest(WrongServer):
    class Server(ToyServer):
        def split(self, bucket):
            return (bucket,)


class AlignsWithoutCp(WrongServer):
    class Server(ToyServer):
        def rows(self, lengths):
            return super().rows(lengths) + 1 if len(lengths) > 1 else super().rows(lengths)


def offered(*batches, **server):
    return ReplayCase(server=replace(SERVER, **server), batches=batches)


ALONE_CASE = ReplayCase(server=ALONE, batches=(batch(8, 8),))
REJECTED = [
    ("capacity.no-overflow", LooksAtTokensAlone, offered(FULL), 0),
    ("replay.admitted-implies-runs", LooksAtTokensAlone, offered(FULL), 0),
    ("replay.admitted-implies-runs", AdmitsWithAnotherSelector, offered(FULL), 0),
    ("select.minimal", SkipsABucket, offered(FULL), 1),
    ("select.complete", NeverReplays, offered(FULL), 1),
    ("select.without-cp", AdmitsInactive, offered(SHORT), 0),
    ("select.without-cp", AlignsWithoutCp, ALONE_CASE, 0),
    ("replay.safe-fallback", AdmitsInactive, offered(SHORT), 0),
    ("agree.bucket", SelectsByOwnTokens, offered(batch(2304), batch(2303)), 0),
    ("agree.mode", SelectsByOwnTokens, offered(batch(2560)), 0),
    ("agree.collectives", SelectsByOwnTokens, offered(FULL), 0),
    ("capture.legal", CapturesOneLongRequest, LADDER, 0),
]


@pytest.mark.parametrize(("id", "wrong", "case", "part"), REJECTED)
def test_a_server_with_one_thing_wrong_is_rejected_and_the_correct_one_is_not(id, wrong, case, part):
    assert judged(wrong(), id, case, part)
    assert judged(Toy(), id, case, part) is None


def test_the_picture_says_why_each_bucket_was_refused():
    case = ReplayCase(server=SERVER, batches=(FULL,))
    seen = ReplaySeen(captured=(CAPTURED,) * 4, batches=(CRASHED,))
    lines = picture(case, seen, PLAIN).splitlines()
    assert lines == [
        "lengths 1534,161,353: 2048 tokens",
        "rank  live  padded  captured  active  admitted  selected  replayed",
        "0     513   520     512       True    True      2048      RuntimeError",
        "1     511   520     512       True    True      2048      RuntimeError",
        "2     512   520     512       True    True      2048      RuntimeError",
        "3     512   520     512       True    True      2048      RuntimeError",
        "RuntimeError: too few rows (bcg.py:2)",
        "bucket  captured rows  by the specification",
        "2048    512            too few rows: 512 captured, 520 needed",
        "2304    576            chosen",
        "2560    640            fits, 2304 is smaller",
    ]
