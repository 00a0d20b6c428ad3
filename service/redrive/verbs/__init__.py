"""Changes that a person can make: each is declared once for all that offer it."""
