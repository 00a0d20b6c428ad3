"""A runner: the process in which handlers run; it knows nothing of Postgres."""
