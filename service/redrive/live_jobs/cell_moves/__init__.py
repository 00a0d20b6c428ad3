"""Moves of jobs between cells: documents on the way, stops, and returns."""
