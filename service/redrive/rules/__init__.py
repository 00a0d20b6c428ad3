"""Decisions of Redrive as pure functions and values: no I/O, no clock, no randomness."""
