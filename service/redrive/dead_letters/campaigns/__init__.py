"""Campaigns: plan redrives, check their payloads, and drive them to their end."""
