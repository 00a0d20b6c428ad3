"""What Redrive decides, as pure functions and values: no I/O, no clock, no chance."""
