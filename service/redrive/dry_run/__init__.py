"""Handlers run in processes that nothing leaves, to see how far they come."""
