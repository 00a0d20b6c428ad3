"""Commands for live jobs, and for what makes them wait."""
