"""The supervisor: talks to Postgres, never runs user code."""
