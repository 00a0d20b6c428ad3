"""Rules for dead letters: campaigns, heal, explain and import."""
