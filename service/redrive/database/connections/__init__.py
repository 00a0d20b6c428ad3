"""Connections to Postgres: addresses, logins, and links with time limits."""
