"""Commands for what a team declares: objectives, owners and retention."""
