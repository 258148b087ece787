"""Ranks that decide alone decide alike; otherwise the GPUs hang."""


def test_all_ranks_choose_the_same_bucket(holds):
    holds("agree.bucket")


def test_all_ranks_choose_the_same_of_graph_and_eager(holds):
    holds("agree.mode")


def test_all_ranks_issue_the_same_sequence_of_collectives(holds):
    holds("agree.collectives")
