"""Programs that make and check files of the repository: `python -m tools.<name>`."""
