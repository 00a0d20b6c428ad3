"""Dry runs: handlers run in confined processes, to see how far they get."""
