"""Commands for a developer's own machine: demo, dev and quickstart."""
