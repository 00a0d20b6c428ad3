"""Seed of the random numbers of an attempt, so that a replay can draw the same ones."""


def seed_of(job: int, deliveries: int) -> str:
    """Return the seed of one delivery of a job."""
    return f"{job}-{deliveries}"
