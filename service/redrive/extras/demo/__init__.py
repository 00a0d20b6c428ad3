"""The shop that `redrive demo` runs: payments, receipts, and an incident.

`handlers.py` is the part to copy; the other modules are the stage around it.
"""
