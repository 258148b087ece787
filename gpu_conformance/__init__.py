"""The GPU conformance layer: replays the chosen graphs on real context-parallel groups.

Nothing runs here yet. Until it does, every `data.*` invariant of the registry is reported as `skip`, with this as the
reason; see ARCHITECTURE.md.
"""
