"""Functions in other languages that enqueue jobs, made from the fields of a job."""
