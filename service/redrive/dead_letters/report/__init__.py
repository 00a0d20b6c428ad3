"""Reports on an incident, and on a week."""
