"""What is captured before serving: section 2 of the specification."""


def test_synthetic_requests_are_legal_and_sum_to_the_bucket_and_impossible_buckets_are_dropped(holds):
    holds("capture.legal")
