"""Answers for programs: the JSON API, and lists as files."""
