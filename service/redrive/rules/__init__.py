"""Decisions of Redrive as pure functions and values: no I/O, clock or randomness."""
