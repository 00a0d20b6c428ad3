"""Explain why a waiting job does not run."""
