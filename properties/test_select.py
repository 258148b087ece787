"""The choice of a captured bucket: section 3 of the specification."""


def test_the_chosen_bucket_holds_the_tokens(holds):
    holds("select.fits-tokens")


def test_the_chosen_bucket_holds_the_rows(holds):
    holds("select.fits-rows")


def test_the_chosen_bucket_was_captured(holds):
    holds("select.captured")


def test_the_chosen_bucket_pads_at_most_to_twice_the_tokens_or_to_the_opt_in_floor(holds):
    holds("select.padding-bound")


def test_no_smaller_captured_bucket_would_do(holds):
    holds("select.minimal")


def test_a_batch_runs_eager_only_when_no_captured_bucket_would_do(holds):
    holds("select.complete")


def test_asking_twice_gives_the_same_answer_and_changes_no_argument(holds):
    holds("select.pure")


def test_without_context_parallelism_the_token_rule_alone_decides(holds):
    holds("select.without-cp")


def test_more_capacity_never_makes_the_choice_worse(holds):
    holds("select.monotone")
