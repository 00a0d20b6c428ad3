"""The stage on which `redrive demo` runs the shop of `redrive quickstart`."""
