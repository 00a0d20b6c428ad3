"""Remove each guard in the SQL in turn, and check that a test fails: `make mutants`."""
