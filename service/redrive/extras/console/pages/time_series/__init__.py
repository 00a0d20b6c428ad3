"""Time series on pages: curves, marks of changes, and the span shown."""
