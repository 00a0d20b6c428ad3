"""A shop that books payments and mails receipts, with an incident in it: what `redrive demo` plays.

`handlers.py` is the part to copy; the rest is the stage around it.
"""
