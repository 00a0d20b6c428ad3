"""A shop that takes orders by an API and does the rest in background jobs."""
