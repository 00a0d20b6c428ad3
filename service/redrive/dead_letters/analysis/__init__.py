"""Analysis of dead letters: causes, reports, reviews, and simulated policies."""
