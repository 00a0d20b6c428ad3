"""Commands for dead letters: list, show, explain, edit, redrive and purge."""
