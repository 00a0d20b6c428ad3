"""Observability: metrics, logs, traces and health."""
