"""Schema of the database: migrations, what blocks them, and foreign objects."""
