"""Long trials with real programs: faults, peers, upgrades, a cluster, what libraries raise."""
