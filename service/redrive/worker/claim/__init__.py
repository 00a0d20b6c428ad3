"""Claims and settlements: the exchange with the database."""
