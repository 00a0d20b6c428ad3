"""The worker pod: a supervisor, which alone talks to Postgres, and runners, which run
user code.
"""
