"""Dead letters: find them, group them, put them back to work."""
