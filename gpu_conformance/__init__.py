"""The GPU conformance layer: replays the buckets that an engine chooses on groups of context-parallel ranks.

`python -m gpu_conformance` runs it, on CPU or GPU; `docs/gpu_conformance.md` says what is checked and how.
"""
