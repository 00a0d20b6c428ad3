"""Migrations of Django's own records; Redrive's schema is brought by the app itself."""
