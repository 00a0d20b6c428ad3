"""Bring dead letters of other queues in."""
