"""Commands that run, install and check Redrive."""
