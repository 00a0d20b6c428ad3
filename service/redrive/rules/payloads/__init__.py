"""Rules for the content of a job: limits, secrets, edits and facts."""
