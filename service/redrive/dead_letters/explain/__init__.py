"""Explain a group: what its dead letters have in common, and what changed before."""
