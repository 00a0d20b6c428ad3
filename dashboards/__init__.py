"""The Grafana dashboards, and the programs that make them: `python -m dashboards.generate`."""
