"""Change payloads of dead letters by a patch."""
