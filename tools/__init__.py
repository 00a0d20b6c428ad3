"""Programs that make and check what is in the repository: `python -m tools.<name>`."""
