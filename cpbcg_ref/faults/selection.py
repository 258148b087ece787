"""Wrong selectors."""

from cpbcg_ref.faults.model import edit

FITS = "if num_tokens <= bucket <= most and bucket in holding"

edit(
    "overflow",
    "the bucket is picked by the number of tokens alone",
    ("replay", FITS, "if num_tokens <= bucket <= most and bucket in bucket_local_tokens"),
    must="capacity.no-overflow select.fits-rows",
    source="sglang#33906",
    smallest=18,
)
