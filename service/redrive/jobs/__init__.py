"""Live jobs: list, show, explain, cancel and run them."""
