"""Remove each guard in the SQL in turn, and see that some test fails: `make mutants`."""
