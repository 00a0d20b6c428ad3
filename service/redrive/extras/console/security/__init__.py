"""Access to the console: request limits, identities, sessions and database logins."""
