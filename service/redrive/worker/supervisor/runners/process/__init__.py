"""One runner process: its start, its environment, and the jobs that it holds."""
