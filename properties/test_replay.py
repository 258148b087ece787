"""Admission and replay: section 3 of the specification."""


def test_what_admission_accepts_replay_runs_with_the_same_bucket(holds):
    holds("replay.admitted-implies-runs")


def test_what_no_graph_can_run_is_run_eager_without_an_exception(holds):
    holds("replay.safe-fallback")
