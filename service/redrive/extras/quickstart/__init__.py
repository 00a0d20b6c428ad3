"""`redrive quickstart`: write a small project."""
