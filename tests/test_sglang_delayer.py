"""SGLang's negotiation and attempt window: the adapter on small trees written here, then on published releases."""

import pytest

torch = pytest.importorskip("torch", reason="SGLang's code needs torch: install the torch extra")

from cpbcg_ref.answers import Raised, Verdict  # noqa: E402
from cpbcg_ref.cases import Attempt, DelayerConfig, RankReport  # noqa: E402
from cpbcg_ref.engines.sglang_attempts import Attempts  # noqa: E402
from cpbcg_ref.engines.sglang_delayer import Delayers, Seconds  # noqa: E402
from cpbcg_ref.errors import TargetError  # noqa: E402

RELEASES = [f"0.5.{patch}" for patch in range(16, 24)]
SLOW, FAST = RELEASES[:6], RELEASES[6:]  # own clock after the gather; flag in the gather

TOY = """
import time
from types import SimpleNamespace
import torch
from sglang.srt.distributed.utils import all_gather_single
from sglang.srt.runtime_context import get_parallel, get_schedule

class PrefillDelayer:
    def __init__(self, server_args, cpu_group, max_delay_passes{more}):
        self.group, self.seen = cpu_group, {seen}
        self._curr_state, self.skip_first_delayer = None, False

class PrefillDelayerSinglePassExecutor:
    def __init__(self, delayer, token_usage):
        self.delayer, self.usage = delayer, token_usage

    def negotiate_should_allow_prefill(self, local_prefillable, waiting_queue_len=0, **rest):
        table = torch.empty({buffer}, dtype=torch.int64)
        {gather}
        reason = repr(table.tolist())
        self._result = SimpleNamespace(output_allow=True, output_reason=reason, wait_forward_passes=0)

    def finalize(self, *, actual_prefill):
        if not hasattr(self, "_result"):
            self.negotiate_should_allow_prefill(False)
"""
GATHER = "all_gather_single(table.flatten(), torch.tensor([waiting_queue_len]), group=self.delayer.group)"
OLD_GATHER = f"torch.distributed.{GATHER}".replace("all_gather_single", "all_gather_into_tensor")


def toy(root, *, more="", seen="0", buffer="(3, 1)", gather=GATHER):
    file = root / "sglang/srt/managers/prefill_delayer.py"
    file.parent.mkdir(parents=True)
    file.write_text(TOY.format(more=more, seen=seen, buffer=buffer, gather=gather))
    return root


def config(**options):
    return DelayerConfig(**{"dp_size": 3, "max_delay_passes": 30, "max_running_requests": 128, **options})


def reports(**options):
    """One report per rank; an option is one value for all ranks or a list of one per rank."""
    ranks = max([len(value) for value in options.values() if isinstance(value, list)], default=2)
    each = {name: value if isinstance(value, list) else [value] * ranks for name, value in options.items()}
    return tuple(
        RankReport(**{"prefillable": True, **{name: value[i] for name, value in each.items()}}) for i in range(ranks)
    )


@pytest.mark.parametrize("gather", [GATHER, OLD_GATHER])
def test_a_gather_fills_the_table_in_rank_order_on_every_rank(tmp_path, gather):
    group = Delayers(toy(tmp_path, gather=gather), config())
    seen = [group.step(reports(waiting_queue_len=lengths)) for lengths in ([5, 6, 7], [8, 9, 0])]
    assert [[verdict.reason for verdict in one] for one in seen] == [["[[5], [6], [7]]"] * 3, ["[[8], [9], [0]]"] * 3]


def test_torch_itself_keeps_its_collective(tmp_path):
    real = torch.distributed.distributed_c10d.all_gather_into_tensor
    Delayers(toy(tmp_path, gather=OLD_GATHER), config()).step(reports(waiting_queue_len=[1, 2, 3]))
    assert torch.distributed.all_gather_into_tensor is real


def test_a_rank_that_raises_before_the_gather_does_not_block_the_others(tmp_path):
    boom = "1 // waiting_queue_len; " + GATHER
    group = Delayers(toy(tmp_path, gather=boom), config())
    answers = group.step(reports(waiting_queue_len=[4, 0, 6]))
    assert [type(answer) for answer in answers] == [Raised] * 3
    assert [answer.kind for answer in answers] == ["CollectiveFailed", "ZeroDivisionError", "CollectiveFailed"]
    assert answers[0].message == "rank 1 never joins this gather"
    assert {answer.where for answer in answers} == {"prefill_delayer.py:19"}
    assert [answer.reason for answer in group.step(reports(waiting_queue_len=[1, 2, 3]))] == ["[[1], [2], [3]]"] * 3


def test_a_rank_that_raises_after_the_gather_leaves_the_others_their_verdict(tmp_path):
    boom = GATHER + "; 1 // waiting_queue_len"
    answers = Delayers(toy(tmp_path, gather=boom), config()).step(reports(waiting_queue_len=[4, 0, 6]))
    assert [type(answer) for answer in answers] == [Verdict, Raised, Verdict]


def test_a_buffer_for_another_group_is_the_engines_error(tmp_path):
    group = Delayers(toy(tmp_path, buffer="(4, 1)"), config())
    answers = group.step(reports(waiting_queue_len=[4, 5, 6]))
    assert {answer.message for answer in answers} == {"3 values do not fit a buffer of 4"}


def test_a_second_gather_in_one_pass_is_the_engines_error(tmp_path):
    group = Delayers(toy(tmp_path, gather=f"{GATHER}; {GATHER}"), config())
    answers = group.step(reports(waiting_queue_len=[4, 5, 6]))
    assert {answer.message for answer in answers} == {"this rank gathers a second time in the same pass"}


def test_every_rank_reads_its_own_clock(tmp_path):
    clock = "torch.empty(1); import time; " + GATHER + "; table = torch.tensor([time.perf_counter()])"
    group = Delayers(toy(tmp_path, gather=clock), config())
    assert [answer.reason for answer in group.step(reports(now_ms=[500.0, 1000.0, 2500.0]))] == [
        "[0.5]",
        "[1.0]",
        "[2.5]",
    ]


def test_without_dp_attention_a_replica_gathers_alone(tmp_path):
    group = Delayers(toy(tmp_path, buffer="(1, 1)"), config(enable_dp_attention=False))
    assert [answer.reason for answer in group.step(reports(waiting_queue_len=[4, 5]))] == ["[[4]]", "[[5]]"]


def test_a_rank_with_nothing_to_prefill_contributes_nothing_else(tmp_path):
    group = Delayers(toy(tmp_path), config())
    answers = group.step(reports(prefillable=[True, False, True], waiting_queue_len=[4, 5, 6]))
    assert answers[0].reason == "[[4], [0], [6]]"


def test_an_error_of_the_adapter_is_not_an_answer(tmp_path):
    group = Delayers(toy(tmp_path), config())
    with pytest.raises(ValueError, match="zip"):
        group.step(reports(waiting_queue_len=[4, 5]))
    with pytest.raises(AttributeError, match="now_ms"):
        group.step((None, None, None))


def test_an_unknown_constructor_argument_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"prefill_delayer\.py: the engine asks its process for 'moon_phase', which"):
        Delayers(toy(tmp_path, more=", moon_phase"), config())


def test_unknown_process_state_is_named(tmp_path):
    with pytest.raises(TargetError, match="moon_phase"):
        Delayers(toy(tmp_path, seen="get_schedule().moon_phase"), config())


def test_a_release_without_a_scheduler_still_has_its_delayer(tmp_path):
    Delayers(toy(tmp_path), config())
    with pytest.raises(TargetError, match="scheduler is missing"):
        Attempts(tmp_path)


@pytest.mark.parametrize(("start", "limit"), [(0.0, 1001.0), (7.0, 65.0), (7.0, 169.0), (0.1, 0.2)])
def test_the_virtual_clock_has_no_rounding_error(start, limit):
    elapsed_ms = (Seconds(start + limit) - Seconds(start)) * 1000.0
    assert elapsed_ms == (start + limit) - start


def test_an_exit_in_a_rank_reaches_the_caller(tmp_path):
    group = Delayers(toy(tmp_path, gather="raise SystemExit"), config())
    with pytest.raises(SystemExit):
        group.step(reports(waiting_queue_len=[4, 5, 6]))


def test_what_a_rank_does_before_its_gather_happens_once_in_a_pass(tmp_path):
    count = "self.delayer.passes.append(0); waiting_queue_len = len(self.delayer.passes); " + GATHER
    group = Delayers(toy(tmp_path, seen="0; self.passes = []", gather=count), config())
    one = reports(waiting_queue_len=[0, 0, 0])
    assert [group.step(one)[2].reason for _ in range(2)] == ["[[1], [1], [1]]", "[[2], [2], [2]]"]


@pytest.fixture(params=RELEASES)
def version(request):
    return request.param


@pytest.fixture
def folder(release_folder, version):
    return release_folder(version)


def verdicts(folder, settings, passes):
    group = Delayers(folder, settings)
    return [group.step(one) for one in passes]


def on(versions):
    return pytest.mark.parametrize("version", versions)


def test_every_release_can_be_asked(folder):
    assert Delayers(folder, config()).step(reports(now_ms=[0.0] * 3))[0].allow
    assert Attempts(folder).step(Attempt()) == 0


@pytest.mark.parametrize(
    ("version", "second"), [(version, "delay" if version > "0.5.18" else "no_wait") for version in RELEASES]
)
def test_the_target_is_capped_by_the_configuration_since_0_5_19(folder, second):
    settings = config(
        dp_size=4,
        max_running_requests=1024,
        queue_min_ratio=0.02,
        prefill_max_requests=128,
        token_usage_low_watermark=0.8,
    )
    one = reports(running_batch=[500] * 4, max_prefill_bs=1, waiting_queue_len=1, token_usage=0.9)
    seen = verdicts(folder, settings, [one, one])
    assert [[verdict.reason for verdict in row] for row in seen] == [["no_wait"] * 4, [second] * 4]
    assert [row[0].free_pass_used for row in seen] == [second == "delay"] * 2


@pytest.mark.parametrize(
    ("version", "third"),
    [(v, ["delay", "wait_success"]) for v in SLOW] + [(v, ["wait_success", "wait_success"]) for v in FAST],
)
def test_clocks_on_either_side_of_the_limit_split_the_ranks_up_to_0_5_21(folder, third):
    settings = config(
        dp_size=2, max_running_requests=64, max_delay_ms=500.0, queue_min_ratio=0.5, prefill_max_requests=4
    )
    passes = [
        reports(running_batch=8, max_prefill_bs=4, waiting_queue_len=1, now_ms=now)
        for now in ([0.0, 0.0], [0.0, 0.0], [499.9, 500.1])
    ]
    seen = [[verdict.reason for verdict in row] for row in verdicts(folder, settings, passes)]
    assert seen == [["no_wait"] * 2, ["delay"] * 2, third]


@pytest.mark.parametrize(("version", "allows"), [(v, 1 if v == "0.5.16" else 14) for v in RELEASES])
def test_the_slot_delay_is_bounded_since_0_5_17(folder, allows):
    settings = config(dp_size=2, max_delay_passes=3)
    seen = verdicts(folder, settings, [reports(running_batch=100, max_prefill_bs=80)] * 40)
    assert sum(row[0].allow for row in seen) == allows
    if allows == 14:
        assert [(row[1].reason, row[1].wait_passes) for row in seen[:4]] == [
            ("no_wait", 0),
            ("delay", 0),
            ("delay", 0),
            ("wait_timeout", 2),
        ]


def test_mixed_passes_are_delayed_up_to_the_bound(folder):
    mixed, everyone = reports(prefillable=[True, False]), reports(prefillable=[True, True])
    three = [row[1] for row in verdicts(folder, config(dp_size=2, max_delay_passes=3), [mixed] * 3)]
    assert [(v.reason, v.wait_passes, v.episode_open, v.delayed_passes) for v in three] == [
        ("delay", 0, True, 1),
        ("delay", 0, True, 2),
        ("wait_timeout", 2, False, 0),
    ]
    released = verdicts(folder, config(dp_size=2, max_delay_passes=2), [mixed, everyone])[-1][0]
    assert (released.reason, released.wait_passes) == ("wait_success", 1)
    assert verdicts(folder, config(dp_size=2, max_delay_passes=0), [mixed])[0][0].reason == "wait_timeout"


def test_replicas_without_dp_attention_share_the_limit(folder):
    settings = config(dp_size=3, max_running_requests=128, enable_dp_attention=False)
    passes = [reports(running_batch=[40], max_prefill_bs=size) for size in (4, 3)]  # ceil(128 / 3) - 40 = 3 slots
    assert [row[0].free_pass_used for row in verdicts(folder, settings, passes[1:] + passes[:1])] == [False, True]


def sizes(folder, *attempts):
    window = Attempts(folder)
    return [window.step(attempt) for attempt in attempts]


@on(["0.5.16"])
def test_0_5_16_never_forgets_a_burst(folder):
    assert sizes(folder, Attempt(admitted=50), *[Attempt(admitted=1)] * 400)[-1] == 50


@on(["0.5.17"])
def test_0_5_17_forgets_an_admission_in_idle_passes(folder):
    seen = sizes(folder, Attempt(admitted=2), *[Attempt()] * 400)
    assert (seen[0], seen[-1]) == (1, 0)


@on(RELEASES[2:])
def test_since_0_5_18_the_largest_of_the_last_16_attempts_counts(folder):
    assert sizes(folder, Attempt(admitted=5), *[Attempt()] * 400)[-1] == 5
    assert sizes(folder, Attempt(admitted=5), *[Attempt(admitted=1)] * 16)[-2:] == [5, 1]
    assert sizes(folder, Attempt(admitted=2, queue=5, free_slots=3)) == [2]
    rejected = [Attempt(queue=7, free_slots=9), Attempt(queue=9, free_slots=8), Attempt(queue=20, free_slots=30)]
    assert sizes(folder, Attempt(queue=3), *rejected) == [1, 7, 8, 20]


def test_releases_do_not_disturb_each_other(release_folder):
    roots = [release_folder(version) for version in ("0.5.16", "0.5.18")]
    groups = [Delayers(root, config(dp_size=2, max_delay_passes=2)) for root in roots]
    windows = [Attempts(root) for root in roots]
    full = reports(running_batch=100, max_prefill_bs=80)
    reasons = [[group.step(full)[0].reason for group in groups] for _ in range(3)]
    assert reasons == [["no_wait", "no_wait"], ["delay", "delay"], ["delay", "wait_timeout"]]
    last = [[window.step(Attempt(admitted=size)) for window in windows] for size in (9, *[1] * 16)][-1]
    assert last == [9, 1]
