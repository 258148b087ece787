"""A deployment file is read as it is or refused with one sentence that names file, key, value and rule."""

import pytest

from cpbcg_ref.cases import DelayerConfig, Server
from cpbcg_ref.checking.deployment import read_deployment
from cpbcg_ref.errors import InvalidInput

SERVER = "[server]\ncp_size = 4\ncapture_num_tokens = [2048, 2304]\ncontext_length = 4096\n"
DELAYER = "[delayer]\ndp_size = 4\nmax_delay_passes = 30\nmax_running_requests = 1024\n"


@pytest.fixture
def read(tmp_path):
    def written_and_read(text):
        (tmp_path / "server.toml").write_text(text)
        return read_deployment(tmp_path / "server.toml")

    return written_and_read


def test_both_tables_are_read_and_what_is_not_said_keeps_its_default(read):
    deployment = read(SERVER + DELAYER)
    assert deployment.server == Server(cp_size=4, capture_num_tokens=(2048, 2304), context_length=4096)
    assert deployment.delayer == DelayerConfig(dp_size=4, max_delay_passes=30, max_running_requests=1024)


def test_every_key_is_read(read):
    server = read(SERVER + 'strategy = "interleave"\nmax_padding_factor = 3\nmin_replay_bucket = 16').server
    assert (server.strategy, server.max_padding_factor, server.min_replay_bucket) == ("interleave", 3, 16)
    assert read(
        DELAYER + "max_delay_ms = 500\nqueue_min_ratio = 0.5\nprefill_max_requests = 4\n"
        "token_usage_low_watermark = 0.8\nenable_dp_attention = false"
    ).delayer == DelayerConfig(
        dp_size=4,
        max_delay_passes=30,
        max_running_requests=1024,
        max_delay_ms=500,
        queue_min_ratio=0.5,
        prefill_max_requests=4,
        token_usage_low_watermark=0.8,
        enable_dp_attention=False,
    )


def test_a_missing_table_leaves_that_side_free(read):
    assert read(SERVER).delayer is None
    assert read(DELAYER).server is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "describes nothing: a deployment has a table [server], [delayer] or both"),
        ("[sever]\ncp_size = 4", "sever is an unknown table: did you mean server?"),
        ("server = 4", "server is 4: it must be a table, [server]"),
        (SERVER + "cp_sise = 4", "cp_sise is an unknown key of [server]: did you mean cp_size?"),
        (DELAYER + "x = 1", "x is an unknown key of [delayer]: did you mean dp_size or enable_dp_attention or "),
        (
            SERVER.replace("cp_size = 4", "cp_size = 0"),
            "[server] cp_size is 0: ",
        ),
        (SERVER.replace("cp_size = 4", "cp_size = true"), "[server] cp_size is True: "),
        (SERVER.replace("cp_size = 4", 'cp_size = "4"'), "[server] cp_size is '4': "),
        (SERVER.replace("cp_size = 4\n", ""), "[server] lacks cp_size"),
        (
            SERVER.replace("2304", "2048"),
            "capture_num_tokens is (2048, 2048): ",
        ),
        (SERVER.replace("2304", "8"), "capture_num_tokens is (2048, 8): "),
        (
            SERVER.replace("2048, 2304", ""),
            "capture_num_tokens is (): ",
        ),
        (
            SERVER.replace("4096", "7"),
            "capture_num_tokens is (2048, 2304): no bucket can be captured with {'context_length': 7, 'cp_size': 4, ",
        ),
        (
            SERVER.replace("2048, 2304", "4, 7"),
            "capture_num_tokens is (4, 7): no bucket can be captured with {'context_length': 4096, 'cp_size': 4, ",
        ),
        (SERVER + 'strategy = "zig"', "[server] strategy is 'zig': "),
        (
            DELAYER + "queue_min_ratio = nan",
            "[delayer] queue_min_ratio is nan: ",
        ),
        (DELAYER + "max_delay_ms = -1.0", "[delayer] max_delay_ms is -1.0: "),
        (
            DELAYER + "token_usage_low_watermark = 1.5",
            "[delayer] token_usage_low_watermark is 1.5: a share of the cache is at most 1",
        ),
        (DELAYER + "enable_dp_attention = 1", "[delayer] enable_dp_attention is 1: "),
        ("[server", "cannot be read as TOML: "),
    ],
)
def test_what_cannot_stand_is_refused_with_file_key_value_and_rule(read, text, sentence):
    with pytest.raises(InvalidInput, match=r"^/.*server\.toml: ") as refusal:
        read(text)
    assert sentence in str(refusal.value)


def test_a_file_that_is_not_there_is_a_sentence_too(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read as TOML"):
        read_deployment(tmp_path / "none.toml")
