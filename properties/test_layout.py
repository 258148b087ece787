"""Who owns which token: section 1 of the specification."""


def test_every_token_of_the_batch_is_owned_by_exactly_one_row(holds):
    holds("layout.bijection")


def test_block_sizes_sum_to_the_request_and_rows_to_the_batch(holds):
    holds("layout.conserves")


def test_shard_then_gather_gives_the_batch_back_also_in_a_larger_captured_layout(holds):
    holds("layout.roundtrip")


def test_everything_per_token_moves_by_the_same_map(holds):
    holds("layout.companions")


def test_each_row_sees_exactly_its_causal_keys_with_and_without_prefix(holds):
    holds("layout.causal")


def test_an_active_batch_gives_every_rank_a_row(holds):
    holds("layout.nonempty")


def test_rows_and_causal_work_of_a_request_are_balanced_between_ranks(holds):
    holds("layout.balance")


def test_a_length_that_cannot_be_sharded_is_refused_loudly(holds):
    holds("layout.bad-input")
