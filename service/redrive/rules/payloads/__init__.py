"""Rules for what a job holds: limits, secrets, edits and facts."""
