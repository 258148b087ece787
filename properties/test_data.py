"""What a replayed graph computes: section 5 of the specification."""


def test_replay_equals_eager_on_every_live_row(holds):
    holds("data.replay-equals-eager")


def test_replaying_one_batch_leaves_nothing_behind_for_the_next(holds):
    holds("data.history-free")


def test_what_stands_in_padding_rows_changes_no_live_row(holds):
    holds("data.padding-inert")


def test_nothing_outside_the_captured_capacity_is_read_or_written(holds):
    holds("data.in-bounds")
