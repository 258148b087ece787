"""Engines under test: the contract they declare, the strings that name them, and one adapter per engine."""
