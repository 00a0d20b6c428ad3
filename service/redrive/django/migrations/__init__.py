"""Migrations for Django's own records; the app itself migrates Redrive's schema."""
