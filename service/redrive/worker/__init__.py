"""The worker pod: one supervisor, which alone talks to Postgres, and its runners, which alone run
user code.
"""
