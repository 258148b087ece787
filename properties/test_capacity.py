"""Rows that a batch needs against rows that a graph has: sections 1 and 2 of the specification."""


def test_required_rows_are_the_padded_maximum_of_the_rows_that_sharding_produces(holds):
    holds("capacity.required")


def test_no_rank_has_more_live_rows_than_the_admitted_bucket_captured(holds):
    holds("capacity.no-overflow")
