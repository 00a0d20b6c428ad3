"""Commands for live jobs, and for the controls that make them wait."""
