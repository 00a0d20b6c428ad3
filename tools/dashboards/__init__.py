"""The Grafana dashboards: what makes them, and what draws and rehearses them."""
