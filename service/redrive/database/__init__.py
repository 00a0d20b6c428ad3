"""Postgres: connections, schema, drivers, encryption at rest."""
