"""Sections of pages: figures, timelines, and what a login may not read."""
