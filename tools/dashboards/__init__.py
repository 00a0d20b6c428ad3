"""The Grafana dashboards, and the programs that make, draw and rehearse them."""
