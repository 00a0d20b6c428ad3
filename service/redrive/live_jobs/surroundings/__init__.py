"""Surroundings of jobs: workers, queues, and what keeps jobs waiting."""
