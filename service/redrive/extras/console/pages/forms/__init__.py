"""Pages that change something: previews, links that act, and proposals."""
