"""The state of the whole queue in a few figures and one sentence."""
