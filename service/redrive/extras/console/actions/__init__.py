"""Changes that operators make in the console: each has a preview and an action."""
