"""`redrive dev`: Postgres, a worker that reloads, and the console, in one terminal."""
